//! Envoy's rate limit service over gRPC, beside `POST /v1/decide` of the same server.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use h2::client::SendRequest;
use hdrhistogram::Histogram;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{
    self, Ask, Clients, Core, Directory, Program, fill, free_port, require, slidegate,
};
use crate::spread::Spread;

/// Calls in flight, on one connection as of an Envoy's worker; and connections of `POST /v1/decide`.
const STREAMS: u32 = 64;
/// As many as the clients of `POST /v1/decide`.
const IDENTITIES: u32 = 1000;

const CONFIG: &str = r#"
[decisions]
listen = "127.0.0.1:@HTTP@"
[rls]
listen = "127.0.0.1:@GRPC@"
[admin]
listen = "127.0.0.1:@ADMIN@"
[[policy]]
name = "clients"
identity = ["ip"]
quotas = ["600000/min"]
[[policy]]
name = "edge"
match = { domain = "edge", descriptors = { remote_address = "*" } }
quotas = ["600000/min"]
"#;

/// Measures, and prints the result.
pub fn run(options: &harness::Options) -> anyhow::Result<()> {
    require(&["wrk"])?;
    let directory = Directory::new()?;
    let (http, grpc) = (free_port()?, free_port()?);
    let ports = [("HTTP", http), ("GRPC", grpc), ("ADMIN", free_port()?)];
    let text = fill(CONFIG, &ports.map(|(name, port)| (name, port.to_string())));
    let mut command = Core::Tested.command(slidegate()?);
    command.args(["serve", "--config"]).arg(directory.write("slidegate.toml", &text)?);
    let program = Program::start(&mut command, http, &directory)?;
    Core::Rest.take(std::process::id())?;
    let clients = Clients::new(&directory, STREAMS)?;
    let body = r#"{"method":"GET","path":"/","client":"@"}"#.to_owned();
    let ask = Ask::Post { path: "/v1/decide", body };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut rates, mut ratios, mut cpu_ratios) = (vec![], vec![], vec![]);
    let (mut p99s, mut http_p99s) = (vec![], vec![]);
    for round in 0..=options.rounds() {
        let before = program.usage()?.cpu;
        let seen = clients.send(http, &ask, options.turn())?;
        let http_cpu = (program.usage()?.cpu - before).as_secs_f64() / seen.answers as f64;
        ensure!(seen.broken == 0 && seen.bad_statuses == 0, "decisions were not answered");
        let http_rate = seen.answers as f64 / seen.took.as_secs_f64();
        let before = program.usage()?.cpu;
        let (rate, times) = runtime.block_on(load(grpc, options.turn()))?;
        let cpu = (program.usage()?.cpu - before).as_secs_f64() / times.len() as f64;
        let p99 = times.value_at_quantile(0.99) as f64 / 1000.0;
        let http_p99 = seen.p99.as_secs_f64() * 1000.0;
        println!(
            "rls {rate:.0}/s, p99 {p99:.2} ms, {:.1} us of the server's processor; /v1/decide \
             {http_rate:.0}/s, p99 {http_p99:.2} ms, {:.1} us",
            cpu * 1e6,
            http_cpu * 1e6
        );
        // The first round is there to warm up.
        if round > 0 {
            rates.push(rate);
            ratios.push(rate / http_rate);
            cpu_ratios.push(http_cpu / cpu);
            p99s.push(p99);
            http_p99s.push(http_p99);
        }
    }
    let ratio = Spread::of(ratios);
    let middles = [rates, cpu_ratios, p99s, http_p99s].map(|figures| Spread::of(figures).middle);
    let [rate, cpu_ratio, p99, http_p99] = middles;
    println!(
        "\nRESULT rls envoy_rls_rps={rate:.0} ratio_to_decide={:.2} ({:.2} to {:.2}) \
         per_processor_time={cpu_ratio:.2} p99_ms={p99:.2} decide_p99_ms={http_p99:.2}",
        ratio.middle, ratio.least, ratio.most
    );
    Ok(())
}

/// Calls as fast as they are answered; returns how many a second, and their times in microseconds.
async fn load(port: u16, length: Duration) -> anyhow::Result<(f64, Histogram<u64>)> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.set_nodelay(true)?;
    let (client, connection) = h2::client::handshake(stream).await?;
    tokio::spawn(connection);
    let calls: Vec<Bytes> = (0..IDENTITIES).map(call_of).collect();
    let (start, mut streams) = (Instant::now(), JoinSet::new());
    for first in 0..STREAMS as usize {
        let (client, calls) = (client.clone(), calls.clone());
        streams.spawn(async move {
            let (mut times, mut next) = (Histogram::<u64>::new(3)?, first);
            while start.elapsed() < length {
                let asked = Instant::now();
                call(client.clone(), port, calls[next % calls.len()].clone()).await?;
                times.record(asked.elapsed().as_micros() as u64)?;
                next += STREAMS as usize;
            }
            anyhow::Ok(times)
        });
    }
    let mut all = Histogram::<u64>::new(3)?;
    for times in streams.join_all().await {
        all.add(times?)?;
    }
    Ok((all.len() as f64 / start.elapsed().as_secs_f64(), all))
}

/// One call, which is to be answered with OK.
async fn call(client: SendRequest<Bytes>, port: u16, message: Bytes) -> anyhow::Result<()> {
    let uri = format!(
        "http://127.0.0.1:{port}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
    );
    let head = http::Request::post(uri).header("content-type", "application/grpc");
    let head = head.header("te", "trailers").body(())?;
    let (response, mut body) = client.ready().await?.send_request(head, false)?;
    body.send_data(message, true)?;
    let mut answer = response.await?.into_body();
    let mut bytes = Vec::new();
    while let Some(data) = answer.data().await {
        let data = data?;
        answer.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    let trailers = answer.trailers().await?.context("no trailers")?;
    ensure!(trailers.get("grpc-status").is_some_and(|status| status == "0"), "{trailers:?}");
    // Behind the length is the first field, the overall code, with 1 for OK.
    ensure!(bytes.get(5..7) == Some(&[0x08, 1]), "not allowed: {bytes:?}");
    Ok(())
}

/// A message with the descriptor of one client, as it goes over the wire.
fn call_of(identity: u32) -> Bytes {
    let field = |number: u8, content: &[u8]| {
        let head = [number << 3 | 2, u8::try_from(content.len()).expect("a short field")];
        [&head, content].concat()
    };
    let address = format!("10.0.{}.{}", identity / 250, identity % 250 + 1);
    let entry = [field(1, b"remote_address"), field(2, address.as_bytes())].concat();
    let message = [field(1, b"edge"), field(2, &field(1, &entry))].concat();
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], &message].concat().into()
}
