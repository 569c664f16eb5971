//! What a tenant's agents can look up, from folders to what is found.

mod administration;
mod embeddings;
mod import;

use std::fs;
use std::path::Path;

use amalgam_testkit::Setup;
use serde_json::Value;

use crate::support::{Cli, TestStore, World};

const TENANTS: &str = "[tenants.a]\nid = 1\nkeys = [\"am_a\"]\n\n[tenants.b]\nid = 2\nkeys = [\"am_b\"]\n";

/// A server with two tenants, the command line beside it, and a folder to import.
struct Library {
    world: World,
    cli: Cli,
}

impl Library {
    async fn on(store: &TestStore) -> Self {
        let world = World::with(store.setup(Setup::new().extra(TENANTS)), &[("retries", "0")]).await;
        let cli = Cli::beside(&world.amalgam, store);
        Self { world, cli }
    }

    /// Where a file of the operator's is.
    fn path(&self, path: &str) -> String {
        self.world.amalgam.folder().join("shelf").join(path).to_str().expect("the folder's name is text").to_owned()
    }

    fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(Path::new(&path).parent().expect("a file is in a folder")).expect("a folder can be made");
        fs::write(path, contents).expect("a file can be written");
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).expect("the file is there");
    }

    /// Imports a folder for the first tenant.
    fn import(&self, folder: &str, more: &[&str]) -> Value {
        let path = self.path(folder);
        self.cli.json(
            &[&["knowledge", "import", path.as_str(), "--company-id", "1", "--collection", "code"], more].concat(),
        )
    }

    /// What the first tenant finds.
    fn search(&self, text: &str, more: &[&str]) -> Value {
        self.cli.json(&[&["knowledge", "search", text, "--company-id", "1"], more].concat())
    }

    /// The paths of it, the best first, each once.
    fn paths(&self, text: &str, more: &[&str]) -> Vec<String> {
        let found = self.search(text, more);
        let mut paths: Vec<String> = found["data"]
            .as_array()
            .expect("a search finds a list")
            .iter()
            .map(|chunk| chunk["path"].as_str().expect("a piece has a path").to_owned())
            .collect();
        paths.dedup();
        paths
    }
}

/// Created, updated, unchanged, deleted, skipped.
fn counts(told: &Value) -> [u64; 5] {
    ["created", "updated", "unchanged", "deleted", "skipped"].map(|name| told[name].as_u64().expect("it is counted"))
}
