//! Listen addresses.

use std::collections::BTreeSet;
use std::os::unix::net::UnixListener;
use std::path::Path;

use tokio::net::UnixStream;

use slidegate_testbed::Directory;

use super::client::Client;
use super::endpoint::{Endpoint, anywhere, timeouts};
use crate::net::{Listeners, Settings};
use crate::{Bounds, ListenAddress};

fn settings() -> Settings {
    Settings::new(&timeouts(), &Bounds::default())
}

fn unix(path: &Path) -> ListenAddress {
    ListenAddress::Unix(path.to_owned())
}

#[tokio::test]
async fn workers_share_a_port() {
    let endpoint = Endpoint::with(Listeners::bind(&[anywhere()], 3).unwrap(), &settings());
    let mut workers = BTreeSet::new();
    let mut clients = Vec::new();
    // That the kernel sends none of a hundred connections to a worker does not happen by chance.
    for _ in 0..100 {
        let mut client = Client::connect(endpoint.address()).await;
        workers.insert(client.get("/worker").await);
        clients.push(client);
    }
    assert_eq!(workers.len(), 3);
    assert_eq!((endpoint.counts.open(), endpoint.counts.accepted()), (100, 100));
    endpoint.close().await;
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    for workers in [1, 2] {
        let first = Listeners::bind(&[anywhere()], workers).unwrap();
        let error = Listeners::bind(first.local(), workers).unwrap_err();
        let address = &first.local()[0];
        assert_eq!(error.to_string(), format!("cannot listen on {address}: address in use"));
    }
}

#[test]
fn small_answers_do_not_wait_for_larger_ones() {
    let listeners = Listeners::bind(&[anywhere()], 1).unwrap();
    let ListenAddress::Tcp(address) = listeners.local()[0] else { panic!("not TCP") };
    let _client = std::net::TcpStream::connect(address).unwrap();
    let (accepted, _) = listeners.into_workers()[0].tcp[0].accept().unwrap();
    assert!(accepted.nodelay().unwrap());
}

#[tokio::test]
async fn a_server_listens_on_several_addresses_at_once() {
    let directory = Directory::new();
    let path = directory.path().join("socket");
    let addresses = [anywhere(), anywhere(), unix(&path)];
    let endpoint = Endpoint::with(Listeners::bind(&addresses, 2).unwrap(), &settings());
    for local in &endpoint.local {
        let body = match local {
            ListenAddress::Tcp(address) => Client::connect(*address).await.get("/accepted").await,
            ListenAddress::Unix(path) => {
                Client::on(UnixStream::connect(path).await.unwrap()).get("/accepted").await
            }
        };
        let peer = if matches!(local, ListenAddress::Tcp(_)) { "Some(127.0.0.1)" } else { "None" };
        assert_eq!(body, format!("{peer} false"));
    }
    endpoint.close().await;
    assert!(!path.exists());
}

#[test]
fn a_server_replaces_the_unix_socket_of_a_dead_process() {
    let directory = Directory::new();
    let path = directory.path().join("socket");
    // The file stays when the socket is closed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    drop(Listeners::bind(&[unix(&path)], 2).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_unix_socket_that_is_in_use_is_left_alone() {
    let directory = Directory::new();
    let path = directory.path().join("socket");
    let _first = Listeners::bind(&[unix(&path)], 1).unwrap();
    let error = Listeners::bind(&[unix(&path)], 1).unwrap_err();
    let expected = format!("cannot listen on unix:{}: address in use", path.display());
    assert_eq!(error.to_string(), expected);
    assert!(path.exists());
}

#[test]
fn a_file_that_is_not_a_socket_is_left_alone() {
    let directory = Directory::new();
    let path = directory.path().join("file");
    std::fs::write(&path, "precious").unwrap();
    let error = Listeners::bind(&[unix(&path)], 1).unwrap_err().to_string();
    assert!(error.ends_with("the file exists and is not a socket"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_server_does_not_remove_the_socket_of_a_successor() {
    let directory = Directory::new();
    let path = directory.path().join("socket");
    let first = Listeners::bind(&[unix(&path)], 1).unwrap();
    std::fs::rename(&path, directory.path().join("elsewhere")).unwrap();
    let _second = Listeners::bind(&[unix(&path)], 1).unwrap();
    drop(first);
    assert!(path.exists());
}
