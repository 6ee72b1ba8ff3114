//! A body with a chunk for every byte: what it costs a gateway to pass on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;

use anyhow::{Context, ensure};

use super::gateways::{Env, Gateway};
use crate::harness::{Directory, Options, Runner, Traffic};
use crate::spread::Spread;

/// Of one-byte chunks in one request.
const BODY_BYTES: usize = 1 << 20;
const CHUNK: &[u8] = b"1\r\nx\r\n";
const END: &[u8] = b"0\r\n\r\n";

/// The processor time of a request with a megabyte in one-byte chunks, and the ratio of ours to
/// nginx's.
pub fn run(options: &Options, directory: &Directory) -> anyhow::Result<()> {
    let sink = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let env = Env::in_front_of(sink.local_addr()?.port(), directory)?;
    thread::spawn(move || sink.incoming().for_each(|client| drop(thread::spawn(|| take(client)))));
    let ours = env.start(Gateway::Memory, Traffic::Allowed)?;
    let nginx = env.start(Gateway::Nginx, Traffic::Allowed)?;
    println!("\na megabyte in one-byte chunks: processor time, ms");
    println!("  {:<24}{:>8}", "", "ms");
    let mut ratios = Vec::new();
    for _ in 0..options.rounds() {
        let (theirs, ours) = (cost_ms(&nginx)?, cost_ms(&ours)?);
        println!("  {:<24}{theirs:>8.0}\n  {:<24}{ours:>8.0}", nginx.name, "Slidegate");
        ratios.push(ours / theirs);
    }
    println!("\nRESULT chunks cpu_ratio={:.1}", Spread::of(ratios).middle);
    Ok(())
}

fn cost_ms(runner: &Runner) -> anyhow::Result<f64> {
    let before = runner.program.usage()?.cpu;
    let mut gateway = TcpStream::connect((Ipv4Addr::LOCALHOST, runner.port))?;
    gateway.write_all(
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
    )?;
    let piece = CHUNK.repeat(4096);
    for _ in 0..BODY_BYTES / 4096 {
        gateway.write_all(&piece)?;
    }
    gateway.write_all(END)?;
    let mut answer = String::new();
    gateway.read_to_string(&mut answer).context("no response")?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{}: {answer}", runner.name);
    Ok((runner.program.usage()?.cpu - before).as_secs_f64() * 1e3)
}

/// Answers requests after the end of their body, however that is framed.
fn take(client: std::io::Result<TcpStream>) -> std::io::Result<()> {
    let (mut client, mut buffer) = (client?, vec![0; 1 << 16]);
    let (mut received, mut tail) = (0, Vec::new());
    loop {
        let length = client.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        received += length;
        tail.extend_from_slice(&buffer[..length]);
        tail.drain(..tail.len().saturating_sub(END.len()));
        // nginx has read all of the body and sends its length.
        if received > BODY_BYTES && (tail == END || tail.iter().all(|byte| *byte == b'x')) {
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
            received = 0;
        }
    }
}
