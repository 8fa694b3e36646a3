//! Starts that cannot go well: one clear line, an exit code of its own, nothing overwritten (field case 80).

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::process::{Ground, contents, fails};
use crate::upstream::Upstream;

/// A store with a task that has ended and one that had not.
async fn used(upstream: &Upstream) -> (Ground, String) {
    let ground = Ground::new(upstream, "[[tool]]\nmatch = \"*\"\nmode = \"task\"");
    let mut proxy = ground.start().await;
    let client = proxy.client();
    let id = client.handle("one", "{}").await;
    upstream.run().await.says("kept").await;
    client.ended(&id).await;
    client.handle("two", "{}").await;
    proxy.kill();
    (ground, id)
}

/// The one line that it said.
fn line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains("panicked"), "{text}");
    text
}

/// Everything in a store but the lock, in which each process writes its pid.
fn kept(store: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    contents(store).into_iter().filter(|(path, _)| path.file_name().unwrap() != "lock").collect()
}

/// Starts on `ground`, which must fail with this code and words, and leave everything as it was.
fn refused(ground: &Ground, code: i32, words: &str) {
    let before = kept(&ground.store());
    for _ in 0..2 {
        let output = ground.fails();
        assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stderr));
        let line = line(&output);
        assert!(line.contains(words) && line.contains(ground.store().to_str().unwrap()), "{line}");
        assert!(kept(&ground.store()) == before, "something was written: {line}");
    }
}

#[tokio::test]
async fn a_truncated_store_is_refused() {
    let upstream = Upstream::stdio().await;
    let (ground, _) = used(&upstream).await;
    std::fs::File::options().write(true).open(ground.store().join("db")).unwrap().set_len(0).unwrap();
    refused(&ground, 70, "is damaged");
}

#[tokio::test]
async fn a_store_with_a_zeroed_beginning_is_refused() {
    use std::os::unix::fs::FileExt;
    let upstream = Upstream::stdio().await;
    let (ground, _) = used(&upstream).await;
    // Where sled keeps its settings, the checksum with them.
    let file = std::fs::File::options().write(true).open(ground.store().join("conf")).unwrap();
    let length = file.metadata().unwrap().len();
    file.write_all_at(&vec![0; length.try_into().unwrap()], 0).unwrap();
    refused(&ground, 70, "is damaged");
}

#[tokio::test]
async fn a_store_of_a_newer_version_is_refused() {
    let upstream = Upstream::stdio().await;
    let (ground, id) = used(&upstream).await;
    let marker = ground.store().join("raincheck.store");
    let text = std::fs::read_to_string(&marker).unwrap();
    std::fs::write(&marker, text.replace("raincheck-store 3 ", "raincheck-store 4 ")).unwrap();
    refused(&ground, 72, "newer raincheck");
    // And it is all there for the version that wrote it.
    std::fs::write(&marker, text).unwrap();
    let proxy = ground.start().await;
    assert_eq!(proxy.client().get(&id).await.result()["result"]["content"][0]["text"], "kept");
}

#[tokio::test]
async fn a_folder_of_something_else_is_refused() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "");
    std::fs::create_dir(ground.store()).unwrap();
    std::fs::write(ground.store().join("thesis.txt"), "three years of work").unwrap();
    refused(&ground, 73, "holds other things");
    assert_eq!(std::fs::read_dir(ground.store()).unwrap().count(), 1);
    std::fs::remove_dir_all(ground.store()).unwrap();
    std::fs::write(ground.store(), "a file").unwrap();
    let output = ground.fails();
    assert_eq!(output.status.code(), Some(73), "{}", line(&output));
    assert_eq!(std::fs::read(ground.store()).unwrap(), b"a file");
}

#[tokio::test]
async fn a_store_that_another_process_holds_is_refused_and_unharmed() {
    let upstream = Upstream::stdio().await;
    let (ground, id) = used(&upstream).await;
    let proxy = ground.start().await;
    let output = ground.fails();
    assert_eq!(output.status.code(), Some(71), "{}", String::from_utf8_lossy(&output.stderr));
    let said = line(&output);
    assert!(said.contains("in use by process") && said.contains("store.path"), "{said}");
    assert_eq!(proxy.client().get(&id).await.result()["result"]["content"][0]["text"], "kept");
    assert_eq!(proxy.stop().await, Some(0));
}

#[tokio::test]
async fn a_port_that_is_taken_is_told_with_69() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = fails(serve(&ground, &["--listen", &address]));
    assert_eq!(output.status.code(), Some(69), "{}", String::from_utf8_lossy(&output.stderr));
    let said = line(&output);
    assert!(said.contains(&address) && said.contains("--listen"), "{said}");
    // Nothing was made for a proxy that never was.
    assert!(!ground.store().exists());
}

#[tokio::test]
async fn a_faulty_configuration_is_told_with_64() {
    let upstream = Upstream::stdio().await;
    let ground = Ground::new(&upstream, "[defaults]\nafter = \"soon\"");
    let output = ground.fails();
    assert_eq!(output.status.code(), Some(64));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("defaults.after"), "{said}");
    assert!(!ground.store().exists());
    let ground = Ground::new(&upstream, "");
    assert_eq!(fails(serve(&ground, &["--listen", "nowhere"])).status.code(), Some(64));
}

fn serve(ground: &Ground, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_raincheck"));
    command.args(["serve", "--config"]).arg(ground.config()).args(more).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}
