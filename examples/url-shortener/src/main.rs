//! Serves the URL shortener on port 3000 until Ctrl-C.

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://{}", listener.local_addr()?);
    let shutdown = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    url_shortener::serve(listener, shutdown).await
}
