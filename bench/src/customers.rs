//! Customers: a million keys of PostgreSQL, how soon a revoked one is refused, and what a token costs that
//! was verified before.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use http::HeaderMap;
use serde_json::json;
use slidegate::limit::SystemClock;
use slidegate::policy::KeyHash;
use slidegate_customers::{
    Customers, InvalidTokens, IssuerConfig, JwksLocation, KeyAnswer, PostgresConfig, PostgresKeys,
    TokenAlgorithm, Tokens, authorities,
};
use slidegate_testbed::{PostgresServer, TokenIssuer};
use tokio::runtime::Runtime;

use crate::{alloc, calls};

const KEYS: usize = 1_000_000;
const REVOCATIONS: usize = 10;
const POLL: Duration = Duration::from_secs(2);
/// Calls under callgrind.
const CALLS: u64 = 20_000;

/// Measures, and prints the result.
pub fn run() -> anyhow::Result<()> {
    let server = PostgresServer::start();
    let database = server.database();
    database.sql(&format!(
        "create unlogged table api_keys as select encode(sha256(('k' || i)::bytea), 'hex') as digest,
         'cust-' || lpad(i::text, 7, '0') as customer, 'pro' as plan, null::timestamptz as expires_at,
         now() - interval '1 day' as changed_at from generate_series(1, {KEYS}) as i;
         create index on api_keys (changed_at); create unique index on api_keys (customer)"
    ));
    let config = PostgresConfig {
        url: database.url(),
        query: "select digest, customer, plan, expires_at, changed_at from api_keys".to_owned(),
        poll: POLL,
        full: Duration::from_secs(60),
        notify: None,
        hash: KeyHash::Sha256,
        authorities: authorities(b"")?,
    };
    let runtime = Runtime::new()?;
    let began = Instant::now();
    let (bytes, keys) = alloc::bytes_of(|| {
        let keys = PostgresKeys::new(config).expect("a good configuration");
        let running = keys.clone();
        runtime.spawn(async move { running.run().await });
        while keys.find(b"never issued") != KeyAnswer::Unknown {
            thread::sleep(Duration::from_millis(1));
        }
        keys
    });
    let loaded = began.elapsed();
    ensure!(keys.status().keys == KEYS, "all keys are loaded");
    let bytes_per_key = bytes / KEYS;
    let mut longest = Duration::ZERO;
    for nth in 1..=REVOCATIONS {
        let (key, customer) = (format!("k{nth}"), format!("cust-{nth:07}"));
        ensure!(matches!(keys.find(key.as_bytes()), KeyAnswer::Known(_)), "{key} is known");
        database.sql(&format!(
            "update api_keys set expires_at = now(), changed_at = now() where customer = '{customer}'"
        ));
        let began = Instant::now();
        while keys.find(key.as_bytes()) != KeyAnswer::Unknown {
            thread::sleep(Duration::from_millis(1));
        }
        longest = longest.max(began.elapsed());
    }
    println!("{KEYS} keys loaded in {loaded:.2?}, {bytes_per_key} bytes each");
    println!("revoked within {longest:.0?} at most, of {REVOCATIONS}; asked every {POLL:?}");
    println!(
        "\nRESULT customers keys_loaded_per_s={:.0} bytes_per_key={bytes_per_key} \
         revoked_within_ms={} jwt_cached_instructions={}",
        KEYS as f64 / loaded.as_secs_f64(),
        longest.as_millis(),
        token_instructions()?
    );
    Ok(())
}

/// Finds the bearer of a token that was verified before.
pub fn call_token(calls: u32) -> anyhow::Result<()> {
    let issuer = TokenIssuer::new("one");
    let config = IssuerConfig {
        issuer: "https://auth.example.com/".to_owned(),
        jwks: JwksLocation::File(issuer.key_file()),
        audience: vec!["api".to_owned()],
        algorithms: vec![TokenAlgorithm::Rs256],
        user: Some("sub".to_owned()),
        customer: Some("org".to_owned()),
        plan: Some("plan".to_owned()),
        invalid: InvalidTokens::Refuse,
        authorities: authorities(b"")?,
    };
    let tokens = Tokens::new(vec![config], Arc::new(SystemClock::new()))?;
    let customers = Customers::new(None, Some(tokens));
    let runtime = Runtime::new()?;
    let running = customers.clone();
    runtime.spawn(async move { running.run().await });
    let token = issuer.token(&json!({
        "iss": "https://auth.example.com/", "aud": "api", "exp": 4_102_444_800_u64,
        "sub": "42", "org": "acme", "plan": "pro",
    }));
    let mut headers = HeaderMap::new();
    headers.insert(http::header::AUTHORIZATION, format!("Bearer {token}").parse()?);
    while customers.find_now(&headers, |_| false).is_none() {
        drop(runtime.block_on(customers.find(&headers, None, |_| false)));
    }
    calls::repeat(calls, |_| assert!(customers.find_now(&headers, |_| false).is_some()));
    Ok(())
}

/// The instructions of one such call, by callgrind.
fn token_instructions() -> anyhow::Result<u64> {
    let output = std::env::temp_dir().join(format!("slidegate-{}.callgrind", std::process::id()));
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*calls::repeat*"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe()?)
        .args(["calls", "token", &CALLS.to_string()])
        .output()
        .context("valgrind cannot be run: apt-get install valgrind")?;
    ensure!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let profile = std::fs::read_to_string(&output)?;
    let _ = std::fs::remove_file(&output);
    let totals = profile.lines().find_map(|line| line.strip_prefix("totals: "));
    let totals: u64 = totals.context("callgrind prints totals")?.trim().parse()?;
    Ok(totals / CALLS)
}
