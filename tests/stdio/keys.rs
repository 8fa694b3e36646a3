//! Calls that are repeated with their key over stdio.

use serde_json::{Value, json};

use crate::host::{Connection, Machine, modern_with};

const KEY: &str = "dev.raincheck/idempotency-key";

/// Calls `hold` with a key, as a modern client without Tasks does.
async fn hold(client: &mut Connection, key: &str, value: u64) -> Value {
    let params = json!({ "name": "hold", "arguments": { "value": value }, "_meta": { KEY: key } });
    client.ask("tools/call", modern_with(params, json!({}))).await
}

#[tokio::test]
async fn a_call_that_is_repeated_over_stdio_runs_once_and_so_does_one_of_a_legacy_client() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let one = hold(&mut client, "k", 7).await;
    machine.noted("hold", 1).await;
    let two = hold(&mut client, "k", 7).await;
    let other = hold(&mut client, "k", 8).await;
    assert_eq!(client.answer(&other).await["error"]["data"]["reason"], "key_reused");
    let wrong = json!({ "name": "hold", "arguments": {}, "_meta": { KEY: 1 } });
    assert_eq!(client.request("tools/call", modern_with(wrong, json!({}))).await["error"]["code"], -32602);
    let released = client.call("release", json!({})).await;
    client.answer(&released).await;
    let first = client.answer(&one).await;
    assert_eq!(
        (&first["result"]["value"], &first["result"]["_meta"]["dev.raincheck/joined"]),
        (&json!(7), &Value::Null)
    );
    for id in [two, hold(&mut client, "k", 7).await] {
        let again = client.answer(&id).await;
        assert_eq!(again["result"]["value"], 7, "{again}");
        assert_eq!(again["result"]["_meta"]["dev.raincheck/joined"], true, "{again}");
    }
    client.close().await;

    // Another process on the same store, and a client of the other era.
    let mut client = machine.start(&[]);
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "h", "version": "1" } });
    client.request("initialize", hello).await;
    client.notify("notifications/initialized", json!({})).await;
    let params = json!({ "name": "hold", "arguments": { "value": 7 }, "_meta": { KEY: "k" } });
    let again = client.request("tools/call", params).await;
    assert_eq!(
        (&again["result"]["value"], &again["result"]["_meta"]["dev.raincheck/joined"]),
        (&json!(7), &json!(true))
    );
    assert_eq!(machine.ledger("hold"), 1);
    client.close().await;
}

#[tokio::test]
async fn a_call_with_a_key_that_is_cancelled_is_stopped_for_good() {
    let machine = Machine::new();
    let mut client = machine.start(&[]);
    let one = hold(&mut client, "k", 7).await;
    machine.noted("hold", 1).await;
    client.notify("notifications/cancelled", json!({ "requestId": one })).await;
    machine.noted("cancelled", 1).await;
    let again = hold(&mut client, "k", 7).await;
    let again = client.answer(&again).await;
    assert!(again["error"]["message"].as_str().unwrap().contains("was cancelled"), "{again}");
    assert_eq!(machine.ledger("hold"), 1);
    let released = client.call("release", json!({})).await;
    client.answer(&released).await;
    client.close().await;
}
