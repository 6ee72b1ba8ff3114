//! Compiles the part of Envoy's API that the server speaks, without `protoc`.

use std::path::PathBuf;

const SERVICES: [&str; 2] =
    ["envoy/service/ratelimit/v3/rls.proto", "envoy/service/auth/v3/external_auth.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(SERVICES)?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    // For reflection.
    std::fs::write(out.join("envoy.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .include_file("envoy.rs")
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
