//! How types of `berth-domain` look in the OpenAPI description.
//!
//! The domain knows nothing of OpenAPI. Each type here stands for the domain type of the same name in a
//! `#[schema(value_type = …)]`, so that limits and examples are written once. None of them is ever made.

use serde_json::json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

fn object(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::new(kind))
}

macro_rules! described {
    ($name:ident, $doc:literal, $schema:expr) => {
        #[doc = $doc]
        #[derive(Debug)]
        pub enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                $schema.description(Some($doc)).into()
            }
        }

        impl ToSchema for $name {}
    };
}

/// Names: not empty, no control characters, no white space at the ends.
macro_rules! name {
    ($name:ident, $most:literal, $example:literal, $doc:literal) => {
        described!(
            $name,
            $doc,
            object(Type::String)
                .min_length(Some(1))
                .max_length(Some($most))
                .pattern(Some(r"^\S([^\x00-\x1f\x7f]*\S)?$"))
                .examples([json!($example)])
        );
    };
}

/// Texts: may be empty, no control characters.
macro_rules! text {
    ($name:ident, $most:literal, $example:literal, $doc:literal) => {
        described!(
            $name,
            $doc,
            object(Type::String)
                .max_length(Some($most))
                .pattern(Some(r"^[^\x00-\x1f\x7f]*$"))
                .examples([json!($example)])
        );
    };
}

macro_rules! id {
    ($name:ident, $example:literal, $doc:literal) => {
        described!(
            $name,
            $doc,
            object(Type::String).format(Some(SchemaFormat::Custom("uuid".to_owned()))).examples([json!($example)])
        );
    };
}

macro_rules! number {
    ($name:ident, $format:ident, $range:expr, $example:literal, $doc:literal) => {
        described!(
            $name,
            $doc,
            object(Type::Integer)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::$format)))
                .minimum(Some(*$range.start()))
                .maximum(Some(*$range.end()))
                .examples([json!($example)])
        );
    };
}

macro_rules! words {
    ($name:ident, [$($word:literal),+], $doc:literal) => {
        described!($name, $doc, object(Type::String).enum_values(Some([$($word),+])));
    };
}

name!(
    ModelName,
    256,
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "A model of the catalogue; may contain `/`, but no `.` or `..` as a path segment."
);
name!(RunnerId, 128, "gpu-box-1", "A runner.");
name!(MachineId, 128, "0f6ad0a3c1d54b0c9a2e5d7f8b1c2d3e", "A machine.");
name!(BootId, 128, "6f1ff0a4-3f0e-4b58-9b7e-2f3c6f1e9a10", "One boot of a machine.");
name!(PoolName, 128, "default", "A pool of runners.");
name!(LabelKey, 128, "zone", "The key of a label.");
name!(RuntimeName, 64, "vllm", "A runtime that an agent can start.");
name!(GpuName, 128, "NVIDIA H100 80GB HBM3", "What the driver calls a GPU.");
name!(TenantName, 128, "team-search", "Who a workload belongs to.");
name!(Endpoint, 512, "10.0.0.7:41001", "Where a ready slot answers.");
name!(
    DeviceUuid,
    128,
    "GPU-5c1f3b7e-9d0a-4a52-8f3e-1b2c3d4e5f60",
    "One physical pool of GPU memory. A replica suffix (`::3`) is not part of it."
);
name!(
    AdvertisedUuid,
    128,
    "GPU-5c1f3b7e-9d0a-4a52-8f3e-1b2c3d4e5f60::3",
    "A GPU as it is advertised: its UUID, for a time-sliced replica with a suffix that is cut off."
);
name!(FilePath, 4096, "/models/qwen3-8b-q4_k_m.gguf", "A file or a folder, without `.` or `..` as a path segment.");
text!(LabelValue, 256, "eu-1", "The value of a label.");
text!(Arg, 4096, "--max-model-len=8192", "One element of an argument list. No shell ever sees it.");
text!(ReasonText, 1024, "machine was sold", "Words for the record.");
id!(ClusterId, "018f3b1c-7c2e-7d41-9a55-0b8f6f1c2d3e", "One data directory's identity.");
id!(SlotId, "018f3b1c-7c2e-7d41-0000-000000000007", "A slot.");
id!(WorkloadId, "01932c07-3a5b-7cc2-b7d1-58a1f7f4a921", "A workload.");
number!(Revision, UInt64, 0..=u64::MAX, 4711, "The number of the last event in the journal.");
number!(DecisionId, UInt64, 0..=u64::MAX, 815, "A decision.");
number!(Epoch, UInt64, 0..=u64::MAX, 3, "One start of the server on its data directory.");
number!(Incarnation, UInt64, 0..=u64::MAX, 2, "One start of an agent, numbered by the server.");
number!(Sequence, UInt64, 0..=u64::MAX, 17, "The order of an agent's reports.");
number!(Generation, UInt32, 0..=u32::MAX, 1, "How often a slot was started anew in its place.");
number!(Attempt, UInt32, 0..=u32::MAX, 1, "Which try at a workload this is.");
number!(ModelRevision, UInt32, 0..=u32::MAX, 1, "Which version of a model this is.");
number!(GpuCount, UInt16, 0..=u16::MAX, 2, "A number of GPUs.");
number!(Bytes, UInt64, 0..=u64::MAX, 79982566400_u64, "Memory in bytes.");
number!(Millicores, UInt64, 0..=u64::MAX, 8000, "Thousandths of a CPU core.");
number!(Priority, Int32, i32::MIN..=i32::MAX, 10, "Higher goes first.");
words!(
    WorkloadKind,
    ["lease", "job"],
    "A `lease` takes one unit of a slot's concurrency; a `job` has a slot of its own."
);
words!(
    SlotState,
    ["promised", "pending", "starting", "ready", "draining", "stopping", "failed", "unknown"],
    "Where a slot is in its life. Its memory is charged in every one of these."
);
words!(
    EngineRoute,
    [
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "messages",
        "rerank",
        "audio/transcriptions",
        "audio/speech",
        "images/generations"
    ],
    "A route of the gateway, below `/v1`."
);
words!(
    Placement,
    ["spread", "pack"],
    "How candidates are ranked: the least claimed share first, or the tightest fit first."
);
words!(
    Profile,
    ["llama.cpp", "conservative", "vllm"],
    "Whose memory is estimated: programs need different amounts for the same model."
);
described!(
    KvType,
    "How a cache stores keys and values: one name for both, or two with `/` between them.",
    object(Type::String).pattern(Some(r"^[a-z0-9_]{1,16}(/[a-z0-9_]{1,16})?$")).examples([
        json!("f16"),
        json!("q8_0"),
        json!("q8_0/f16")
    ])
);

/// Describes whole bytes of at least `least`, or a number with a unit.
fn size(least: u64, doc: &str) -> RefOr<Schema> {
    let number = object(Type::Integer)
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::UInt64)))
        .minimum(Some(least))
        .maximum(Some(u64::MAX))
        .description(Some("Whole bytes."));
    let text = object(Type::String)
        .pattern(Some(r"^\s*([0-9]{1,20}(\.[0-9]{1,18})?\s*[kKmMgGtT][iI]?[bB]|[0-9]{1,20}\s*[bB]?)\s*$"))
        .description(Some("A number with a unit (B, KB, MB, GB, TB, KiB, MiB, GiB, TiB), rounded up to a byte."))
        .examples([json!("74.49GiB")]);
    OneOfBuilder::new().item(number).item(text).description(Some(doc)).into()
}

/// A size in a request.
#[derive(Debug)]
pub enum Size {}

impl PartialSchema for Size {
    fn schema() -> RefOr<Schema> {
        size(0, "A size: whole bytes, or a number with a unit.")
    }
}

impl ToSchema for Size {}

/// A size above zero in a request.
#[derive(Debug)]
pub enum NeededSize {}

impl PartialSchema for NeededSize {
    fn schema() -> RefOr<Schema> {
        size(1, "A size that is more than nothing: whole bytes, or a number with a unit.")
    }
}

impl ToSchema for NeededSize {}
