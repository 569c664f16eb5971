//! Calls that wait for an approval, as administrators see and decide them.

use amalgam_testkit::Polling;
use serde_json::{Value, json};

use super::{Shop, kept};
use crate::support::{Cli, Delivery, Said, Script, Wire, asking, assert_refused, stores};

impl Shop {
    /// A turn that stops at a call that needs an approval; the id of the approval.
    async fn waiting(&self, order: &str) -> String {
        let arguments = json!({"order_id": order}).to_string();
        let script = Script::new([Said::call("call_1", "refund", &[&arguments])]);
        self.world.upstream(Wire::Chat).enqueue(script.reply(Wire::Chat, Delivery::Whole));
        let request = json!({"input": "Give it back.", "tools": [{"type": "function", "name": "refund"}]});
        let client = self.a().with_header("x-amalgam-user", "ada");
        let response = client.post_json("/v1/responses", &asking(Wire::Chat, Delivery::Whole, &request)).await.json();
        let asks = response["output"].as_array().unwrap().iter().find(|item| item["type"] == "mcp_approval_request");
        assert!(asks.is_some(), "{response}");
        asks.unwrap()["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn an_administrator_sees_what_waits_and_its_first_decision_stands() {
    for store in stores() {
        let shop = Shop::open(&store).await;
        let (a, b) = (shop.a(), shop.b());
        let mut refund = shop.lookup();
        refund["requires_approval"] = json!("admin");
        kept(&a, "/admin/tools/refund", &refund).await;
        let (first, second, third) = (shop.waiting("1").await, shop.waiting("2").await, shop.waiting("3").await);

        let listed = a.get("/admin/approvals?pending=true").await.json();
        let ids: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [&json!(third), &json!(second), &json!(first)], "{}: the newest first", store.name);
        let path = format!("/admin/approvals/{first}");
        let pending = a.get(&path).await.json();
        let expected = json!({
            "id": first, "object": "approval", "status": "pending", "response_id": pending["response_id"], "user": "ada",
            "call_id": "call_1", "tool": {"label": "bank", "name": "refund"}, "arguments": "{\"order_id\":\"1\"}",
            "decider": "admin", "asked_at": pending["asked_at"], "expires_at": pending["expires_at"], "decision": null,
            "used_by": null,
        });
        assert_eq!(pending, expected);
        assert!(pending["expires_at"].as_u64() > pending["asked_at"].as_u64(), "{pending}");

        // Another tenant's look like none at all.
        for path in [path.as_str(), "/admin/approvals/mcpr_AM-unknown"] {
            assert_refused(&b.get(path).await, 404, None, "not_found");
            assert_refused(&b.post_json(path, &json!({"decision": "approve"})).await, 404, None, "not_found");
        }
        assert_eq!(b.get("/admin/approvals").await.json()["data"], json!([]));

        let approve = json!({"decision": "approve", "reason": "The goods\ncame back."});
        let approved = a.post_json(&path, &approve).await.json();
        assert_eq!(
            [&approved["status"], &approved["decision"]["approve"], &approved["decision"]["reason"]],
            [&json!("approved"), &json!(true), &approve["reason"]]
        );
        let again = a.post_json(&path, &json!({"decision": "approve"})).await;
        assert_eq!((again.status.as_u16(), again.json()), (200, approved.clone()), "once more changes nothing");
        assert_refused(&a.post_json(&path, &json!({"decision": "deny"})).await, 409, None, "conflict");
        assert_eq!(a.get(&path).await.json(), approved);
        let path = format!("/admin/approvals/{second}");
        assert_eq!(a.post_json(&path, &json!({"decision": "deny"})).await.json()["status"], "denied");
        assert_refused(&a.post_json(&path, &json!({"decision": "approve"})).await, 409, None, "conflict");
        assert_eq!(a.get("/admin/approvals?pending=true").await.json()["data"].as_array().unwrap().len(), 1);
        let page = a.get("/admin/approvals?limit=2").await.json();
        assert_eq!((&page["has_more"], &page["last_id"]), (&json!(true), &json!(second)));
        let rest = a.get(&format!("/admin/approvals?limit=2&after={second}")).await.json();
        assert_eq!((&rest["has_more"], &rest["first_id"]), (&json!(false), &json!(first)));
        for (body, param) in [
            (json!({}), "decision"),
            (json!({"decision": "maybe"}), "decision"),
            (json!({"decision": "deny", "by": "eve"}), "by"),
        ] {
            let answer = a.post_json(&path, &body).await;
            assert_eq!((answer.status.as_u16(), &answer.json()["error"]["param"]), (400, &json!(param)), "{body}");
        }
        assert_eq!(shop.service.requests().len(), 0, "a decision runs nothing by itself");

        // The same from the command line.
        let cli = Cli::beside(&shop.world.amalgam, &store);
        let waiting = cli.json(&["approvals", "list", "--pending", "--company-id", "1"]);
        assert_eq!(waiting["data"][0]["id"], json!(third));
        assert!(cli.text(&["approvals", "list", "--company-id", "1"]).contains("denied"));
        let denied = cli.json(&["approvals", "deny", &third, "--company-id", "1", "--reason", "Too late."]);
        assert_eq!([&denied["status"], &denied["decision"]["by"]], [&json!("denied"), &json!("operator")]);
        assert_eq!(a.get(&format!("/admin/approvals/{third}")).await.json(), denied);
        assert!(cli.failure(&["approvals", "approve", &third, "--company-id", "1"]).contains("denied before"));
        assert!(cli.failure(&["approvals", "approve", &third, "--company-id", "2"]).contains("not found"));
    }
}

#[tokio::test]
async fn an_approval_that_expired_can_no_longer_be_decided() {
    let shop = Shop::with(&stores()[0], "[limits]\napproval_deadline = \"1s\"\n").await;
    let mut refund = shop.lookup();
    refund["requires_approval"] = json!("admin");
    let a = shop.a();
    kept(&a, "/admin/tools/refund", &refund).await;
    let path = format!("/admin/approvals/{}", shop.waiting("1").await);
    let polling = Polling::new();
    while polling.attempt(a.get(&path)).await.json()["status"] == "pending" {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(a.get(&path).await.json()["status"], "expired");
    assert_refused(&a.post_json(&path, &json!({"decision": "approve"})).await, 409, None, "conflict");
    assert_eq!(a.get("/admin/approvals?pending=true").await.json()["data"], json!([]));
}
