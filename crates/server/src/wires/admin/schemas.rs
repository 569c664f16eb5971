//! Schemas of the OpenAPI document that are derived from the types of `/admin`.

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::{Map, Value, json};

use super::knowledge::{CollectionView, DocumentView};
use super::{List, approvals, configs, diagnosis, keys, modes, profiles, sessions, tenants, tool_bank, tools, turns};

/// Every derived schema, by name.
pub(crate) fn schemas() -> Map<String, Value> {
    let mut answers = settings().for_serialize().into_generator();
    list::<tenants::Tenant<'_>, i64>(&mut answers, "TenantList", "Tenants, ordered by number.");
    list::<keys::Key<'_>, &str>(&mut answers, "KeyList", "Keys, ordered by id.");
    list::<tool_bank::ToolView<'_>, &str>(&mut answers, "ToolList", "Tools, ordered by name.");
    list::<approvals::ApprovalView<'_>, &str>(&mut answers, "ApprovalList", "Approvals, newest first.");
    list::<profiles::Profile<'_>, &str>(&mut answers, "ProfileList", "Profiles, ordered by slug.");
    list::<profiles::Profile<'_>, i64>(&mut answers, "ProfileVersionList", "Versions of a profile, newest first.");
    list::<modes::ModeView<'_>, &str>(&mut answers, "ModeList", "Modes, ordered by name.");
    list::<sessions::SessionHead<'_>, i64>(&mut answers, "SessionList", "Threads, newest first.");
    list::<CollectionView<'_>, &str>(&mut answers, "KnowledgeCollectionList", "Collections, ordered by name.");
    list::<DocumentView<'_>, &str>(&mut answers, "KnowledgeDocumentList", "Documents, ordered by source and path.");
    answers.subschema_for::<configs::AgentConfig>();
    answers.subschema_for::<keys::NewKey<'_>>();
    answers.subschema_for::<tool_bank::TrialView<'_>>();
    answers.subschema_for::<tool_bank::ToolStatisticsView<'_>>();
    answers.subschema_for::<tools::ToolUsage>();
    answers.subschema_for::<profiles::ProfileDiff<'_>>();
    answers.subschema_for::<sessions::Session<'_>>();
    answers.subschema_for::<turns::Turn<'_>>();
    answers.subschema_for::<diagnosis::Diagnosis<'_>>();

    let mut requests = settings().for_deserialize().into_generator();
    requests.subschema_for::<tenants::CreateTenant>();
    requests.subschema_for::<tenants::ChangeTenant>();
    requests.subschema_for::<keys::CreateKey>();
    requests.subschema_for::<configs::ChangeConfig>();
    requests.subschema_for::<tool_bank::PutTool>();
    requests.subschema_for::<tools::TryTool>();
    requests.subschema_for::<approvals::Decide>();
    requests.subschema_for::<profiles::PutProfile>();
    requests.subschema_for::<modes::PutMode>();

    let mut all = answers.take_definitions(true);
    all.append(&mut requests.take_definitions(true));
    all
}

fn settings() -> SchemaSettings {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.with_transform(RecursiveTransform(plain))
}

/// Removes what the rest of the document does not have either: Rust's number formats, and `type` beside `enum` and `const`.
fn plain(schema: &mut Schema) {
    schema.remove("format");
    if schema.get("const").is_some() || schema.get("enum").is_some() {
        schema.remove("type");
    }
    // Doc comments are wrapped; descriptions must not be.
    if let Some(Value::String(description)) = schema.get_mut("description") {
        *description = description.replace('\n', " ");
    }
}

/// Adds the schema of a list of `T`, and that of `T`.
fn list<T: JsonSchema, Id: JsonSchema>(generator: &mut SchemaGenerator, name: &str, description: &str) {
    let mut schema = List::<T, Id>::json_schema(generator);
    schema.insert("description".to_owned(), json!(description));
    generator.definitions_mut().insert(name.to_owned(), schema.into());
}
