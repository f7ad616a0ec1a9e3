//! A model's memory, in all the forms that requests may use.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::estimate::Profile;
use berth_domain::{Bytes, FilePath, Fraction, GpuCount, Memory, MemorySource, RankMemory, RunnerId};
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, SeqAccess};
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, Schema, SchemaType, Type,
};
use utoipa::{PartialSchema, ToSchema};

use crate::schema::NeededSize;
use crate::{EstimateRequest, KvType};

/// How much memory a model needs: `"39GiB"`, whole bytes, `{"total": …}`, `{"per_gpu": {"1": …, "2": … or […]}}`,
/// `{"fraction": 0.5}`, or `{"file": …}` to be estimated, with or without a stated number beside it. It goes out as an
/// object, in whole bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMemory {
    /// The operator's number.
    pub stated: Option<Memory>,
    /// The file to estimate from.
    pub file: Option<EstimateRequest>,
    /// Whether the estimate is charged even where a number was stated.
    pub prefer_estimate: bool,
    /// Whether the observed use is charged, once it is known.
    pub learn: bool,
}

impl From<Memory> for ModelMemory {
    fn from(memory: Memory) -> Self {
        Self { stated: Some(memory), file: None, prefer_estimate: false, learn: false }
    }
}

impl ModelMemory {
    /// Returns the form in which an operator would state this source, or `None` where nothing is known.
    #[must_use]
    pub fn of(source: &MemorySource) -> Option<Self> {
        let file = source.estimate.as_deref().map(EstimateRequest::of);
        (source.stated.is_some() || file.is_some()).then(|| Self {
            stated: source.stated.clone(),
            file,
            prefer_estimate: source.prefer_estimate,
            learn: source.learn,
        })
    }
}

/// The memory of a request that is a JSON object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    total: Option<Needed>,
    per_gpu: Option<PerGpu>,
    fraction: Option<Fraction>,
    #[serde(default)]
    prefer_estimate: bool,
    #[serde(default)]
    learn: bool,
    file: Option<FilePath>,
    runner: Option<RunnerId>,
    projector: Option<FilePath>,
    profile: Option<Profile>,
    context: Option<u64>,
    parallel: Option<u64>,
    kv_type: Option<KvType>,
    flash_attention: Option<bool>,
    batch: Option<u64>,
    unified_cache: Option<bool>,
    overhead: Option<Bytes>,
}

impl Object {
    /// Returns whether the object has options of an estimate.
    fn has_wishes(&self) -> bool {
        self.runner.is_some()
            || self.projector.is_some()
            || self.profile.is_some()
            || self.context.is_some()
            || self.parallel.is_some()
            || self.kv_type.is_some()
            || self.flash_attention.is_some()
            || self.batch.is_some()
            || self.unified_cache.is_some()
            || self.overhead.is_some()
    }

    fn read<E: de::Error>(self) -> Result<ModelMemory, E> {
        let speaks_of_one = self.prefer_estimate || self.has_wishes();
        let total = self.total.map(|Needed(bytes)| Memory::Total(bytes));
        let per_gpu = self.per_gpu.map(|PerGpu(counts)| Memory::PerGpu(counts));
        let mut stated = [total, per_gpu, self.fraction.map(Memory::Fraction)].into_iter().flatten();
        let first = stated.next();
        if stated.next().is_some() {
            return Err(E::custom("memory has one of total, per_gpu and fraction, not several"));
        }
        let file = self.file.map(|file| EstimateRequest {
            runner: self.runner,
            projector: self.projector,
            profile: self.profile,
            context: self.context,
            parallel: self.parallel,
            kv_type: self.kv_type,
            flash_attention: self.flash_attention,
            batch: self.batch,
            unified_cache: self.unified_cache,
            overhead: self.overhead,
            ..EstimateRequest::new(file)
        });
        if file.is_none() && speaks_of_one {
            return Err(E::custom("memory speaks of an estimate but names no file to make it from"));
        }
        if first.is_none() && file.is_none() {
            return Err(E::custom("memory needs one of total, per_gpu and fraction, or a file"));
        }
        Ok(ModelMemory { stated: first, file, prefer_estimate: self.prefer_estimate, learn: self.learn })
    }
}

/// A size above zero. Unknown memory is left out of a request; it is not zero.
struct Needed(Bytes);

impl<'de> Deserialize<'de> for Needed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(deserializer)?;
        needed(bytes).map(Self)
    }
}

fn needed<E: de::Error>(bytes: Bytes) -> Result<Bytes, E> {
    if bytes.is_zero() {
        return Err(E::custom("memory must be more than zero; leave it out where nobody knows it"));
    }
    Ok(bytes)
}

fn fraction_of_a_byte<E: de::Error>(number: f64) -> E {
    E::custom(format!("{number} is no whole number of bytes: write an integer, or a text such as \"74.49GiB\""))
}

impl<'de> Deserialize<'de> for ModelMemory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemoryVisitor)
    }
}

struct MemoryVisitor;

impl<'de> de::Visitor<'de> for MemoryVisitor {
    type Value = ModelMemory;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"39GiB\", or an object with one of total, per_gpu and fraction, or a file")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<ModelMemory, E> {
        needed(Bytes::new(number)).map(|bytes| Memory::Total(bytes).into())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<ModelMemory, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!("{number} is less than nothing"))),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<ModelMemory, E> {
        Err(fraction_of_a_byte(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ModelMemory, E> {
        let bytes = text.parse().map_err(E::custom)?;
        needed(bytes).map(|bytes| Memory::Total(bytes).into())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelMemory, A::Error> {
        Object::deserialize(MapAccessDeserializer::new(map))?.read()
    }
}

/// A number, or a list in rank order, for each GPU count.
struct PerGpu(BTreeMap<GpuCount, RankMemory>);

impl<'de> Deserialize<'de> for PerGpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut counts = BTreeMap::new();
        for (text, Ranks(memory)) in BTreeMap::<String, Ranks>::deserialize(deserializer)? {
            let count = match text.parse() {
                Ok(count) if count > 0 => GpuCount::new(count),
                _ => return Err(de::Error::custom(format!("{text:?} is not a number of GPUs, from 1"))),
            };
            if let RankMemory::Ranks(ranks) = &memory
                && ranks.len() != usize::from(count.get())
            {
                return Err(de::Error::custom(format!("{} numbers for {count} GPUs", ranks.len())));
            }
            if counts.insert(count, memory).is_some() {
                return Err(de::Error::custom(format!("{count} GPUs are listed twice")));
            }
        }
        if counts.is_empty() {
            return Err(de::Error::custom("per_gpu lists no GPU count"));
        }
        Ok(Self(counts))
    }
}

struct Ranks(RankMemory);

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RanksVisitor).map(Self)
    }
}

struct RanksVisitor;

impl<'de> de::Visitor<'de> for RanksVisitor {
    type Value = RankMemory;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size such as \"40GiB\", or a list of sizes in rank order")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<RankMemory, E> {
        needed(Bytes::new(number)).map(RankMemory::Even)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<RankMemory, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(format!("{number} is less than nothing"))),
        }
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<RankMemory, E> {
        Err(fraction_of_a_byte(number))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RankMemory, E> {
        needed(text.parse().map_err(E::custom)?).map(RankMemory::Even)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RankMemory, A::Error> {
        let mut ranks = Vec::new();
        while let Some(Needed(bytes)) = list.next_element()? {
            ranks.push(bytes);
        }
        Ok(RankMemory::Ranks(ranks))
    }
}

impl Serialize for ModelMemory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = Said {
            total: None,
            per_gpu: None,
            fraction: None,
            prefer_estimate: self.prefer_estimate,
            learn: self.learn,
            file: self.file.as_ref(),
        };
        match &self.stated {
            None => {}
            Some(Memory::Total(bytes)) => object.total = Some(*bytes),
            Some(Memory::PerGpu(counts)) => object.per_gpu = Some(Counts(counts)),
            Some(Memory::Fraction(fraction)) => {
                let number = f64::from(fraction.millionths()) / f64::from(Fraction::WHOLE);
                // The shortest text of this number is the fraction as it was written, so it comes back the same.
                if number.to_string().parse() != Ok(*fraction) {
                    return Err(S::Error::custom("a fraction that is no number"));
                }
                object.fraction = Some(number);
            }
        }
        object.serialize(serializer)
    }
}

/// The memory of an answer, as a JSON object.
#[derive(Serialize)]
struct Said<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_gpu: Option<Counts<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fraction: Option<f64>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    prefer_estimate: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    learn: bool,
    #[serde(flatten)]
    file: Option<&'a EstimateRequest>,
}

struct Counts<'a>(&'a BTreeMap<GpuCount, RankMemory>);

impl Serialize for Counts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.0.len()))?;
        for (count, memory) in self.0 {
            object.serialize_entry(&count.to_string(), memory)?;
        }
        object.end()
    }
}

impl PartialSchema for ModelMemory {
    fn schema() -> RefOr<Schema> {
        let typed = |kind| ObjectBuilder::new().schema_type(SchemaType::new(kind));
        let object = || typed(Type::Object).additional_properties(Some(AdditionalProperties::FreeForm(false)));
        let size = || Ref::from_schema_name(NeededSize::name());
        let ranks = OneOfBuilder::new()
            .item(size())
            .item(ArrayBuilder::new().items(size()).description(Some("In rank order, one for each GPU.")));
        let counts = typed(Type::String).pattern(Some("^([1-9]|[1-5][0-9]|6[0-4])$"));
        let per_gpu = typed(Type::Object)
            .property_names(Some(Schema::from(counts)))
            .additional_properties(Some(RefOr::T(Schema::from(ranks))))
            .min_properties(Some(1))
            .description(Some("The memory of each GPU, by the number of GPUs."));
        let per_gpu = Schema::from(per_gpu);
        let fraction = typed(Type::Number)
            .exclusive_minimum(Some(0))
            .maximum(Some(1))
            .description(Some("A fraction of each GPU's capacity, with at most six decimals."));
        let fraction = Schema::from(fraction);
        let truth = |text: &str| typed(Type::Boolean).description(Some(text));
        let learn = || truth("Charge what was seen to be used, once that is known.");
        let prefer = truth("Charge the estimate even where a number is stated beside it.");
        let stated = |name: &str, schema: RefOr<Schema>| {
            Schema::from(object().property(name, schema).required(name).property("learn", learn()))
        };
        // The wishes of an estimate stand beside the file; which GPU counts, the model says.
        let mut file = object()
            .property("total", size())
            .property("per_gpu", per_gpu.clone())
            .property("fraction", fraction.clone())
            .property("prefer_estimate", prefer)
            .property("learn", learn())
            .required("file");
        if let RefOr::T(Schema::Object(request)) = EstimateRequest::schema() {
            let wishes = request.properties.into_iter().filter(|(name, _)| name != "gpu_counts");
            file = wishes.fold(file, |file, (name, schema)| file.property(name, schema));
        }
        let several = json!({"per_gpu": {"1": "74GiB", "2": ["44GiB", "40GiB"]}});
        let estimated = json!({"file": "/models/qwen3-8b-q4_k_m.gguf", "context": 8192, "kv_type": "q8_0"});
        OneOfBuilder::new()
            .item(size())
            .item(stated("total", size().into()))
            .item(stated("per_gpu", per_gpu.into()))
            .item(stated("fraction", fraction.into()))
            .item(file)
            .description(Some(
                "How much memory it needs: one number that is split over its GPUs, a number for each GPU count, a \
                 fraction of a GPU, or a file to estimate it from, with or without a stated number beside it. It goes \
                 out as one of the objects, in whole bytes.",
            ))
            .examples([json!("39GiB"), several, json!({"fraction": 0.5}), estimated])
            .into()
    }
}

impl ToSchema for ModelMemory {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((NeededSize::name().into_owned(), NeededSize::schema()));
        EstimateRequest::schemas(schemas);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{BodyError, read};
    use proptest::prelude::*;

    fn memory(text: &str) -> Result<ModelMemory, BodyError> {
        #[derive(Deserialize)]
        struct Body {
            memory: ModelMemory,
        }
        read::<Body>(format!("{{\"memory\": {text}}}").as_bytes()).map(|body| body.memory)
    }

    fn refused(text: &str) -> (String, String) {
        match memory(text) {
            Err(BodyError::Invalid(invalid)) => (invalid.field, invalid.detail),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn every_form_is_read() {
        let total = Memory::Total(Bytes::gib(39));
        for text in ["\"39GiB\"", "41875931136", "{\"total\": \"39 GiB\"}", "{\"total\": 41875931136}"] {
            assert_eq!(memory(text), Ok(total.clone().into()), "{text}");
        }
        assert_eq!(memory("\"74.49GiB\""), Ok(Memory::Total(Bytes::new(79_983_028_470)).into()), "b1");
        let half = Fraction::from_millionths(500_000).unwrap();
        assert_eq!(memory("{\"fraction\": 0.5}"), Ok(Memory::Fraction(half).into()));
        assert_eq!(memory("{\"fraction\": \"0.5\"}"), Ok(Memory::Fraction(half).into()));
        let per_gpu = BTreeMap::from([
            (GpuCount::new(1), RankMemory::Even(Bytes::gib(74))),
            (GpuCount::new(2), RankMemory::Ranks(vec![Bytes::gib(44), Bytes::gib(40)])),
        ]);
        let text = "{\"per_gpu\": {\"1\": \"74GiB\", \"2\": [\"44GiB\", 42949672960]}}";
        assert_eq!(memory(text), Ok(Memory::PerGpu(per_gpu).into()));
    }

    #[test]
    fn b1_what_is_no_size_is_refused_with_its_field() {
        for (text, detail) in [
            ("-1", "-1 is less than nothing"),
            ("0", "more than zero"),
            ("\"0GiB\"", "more than zero"),
            ("1.5", "1.5 is no whole number of bytes"),
            ("\"99999999EiB\"", "unknown unit \"EiB\""),
            ("\"99999999999TiB\"", "larger than any memory"),
            ("99999999999999999999", "no whole number of bytes"),
            ("1e400", "number out of range"),
            ("\"NaN\"", "unknown unit"),
            ("true", "expected a size such as"),
            ("{}", "one of total, per_gpu and fraction"),
            ("{\"total\": \"1GiB\", \"fraction\": 0.5}", "not several"),
            ("{\"context\": 8192}", "names no file"),
            ("{\"total\": 1, \"prefer_estimate\": true}", "names no file"),
            ("{\"totl\": 5}", "unknown field `totl`"),
        ] {
            let (field, said) = refused(text);
            assert!(field.starts_with("memory"), "{text}: field {field}");
            assert!(said.contains(detail), "{text}: {said}");
        }
    }

    #[test]
    fn b1_fields_inside_are_named_too() {
        for (text, field) in [
            ("{\"total\": -1}", "memory.total"),
            ("{\"fraction\": 0}", "memory.fraction"),
            ("{\"fraction\": 1.5}", "memory.fraction"),
            ("{\"per_gpu\": {\"2\": 1.5}}", "memory.per_gpu.2"),
            ("{\"per_gpu\": {\"2\": [1, -2]}}", "memory.per_gpu.2[1]"),
            ("{\"per_gpu\": {\"2\": [1]}}", "memory.per_gpu"),
            ("{\"per_gpu\": {\"two\": 1}}", "memory.per_gpu"),
            ("{\"per_gpu\": {\"0\": 1}}", "memory.per_gpu"),
            ("{\"per_gpu\": {\"1\": 1, \"01\": 1}}", "memory.per_gpu"),
            ("{\"per_gpu\": {}}", "memory.per_gpu"),
            ("{\"file\": \"/m/../a.gguf\"}", "memory.file"),
            ("{\"file\": \"/m/a.gguf\", \"kv_type\": \"f17\"}", "memory.kv_type"),
            ("{\"file\": \"/m/a.gguf\", \"profile\": \"none\"}", "memory.profile"),
        ] {
            assert_eq!(refused(text).0, field, "{text}");
        }
    }

    #[test]
    fn a_file_comes_back_with_all_that_was_said_beside_it() {
        let text = r#"{"total":42,"prefer_estimate":true,"learn":true,"file":"/m/a.gguf","profile":"llama.cpp","context":8192,"parallel":4,"kv_type":"q8_0/f16","flash_attention":true,"batch":256,"unified_cache":false,"overhead":1048576}"#;
        let read = memory(text).unwrap();
        assert_eq!(read.stated, Some(Memory::Total(Bytes::new(42))));
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        let options = read.file.unwrap().options();
        assert_eq!((options.context, options.overhead), (Some(8192), Some(Bytes::mib(1))));
    }

    proptest! {
        #[test]
        fn what_goes_out_comes_back(millionths in 1u32..=1_000_000, bytes in 1u64..) {
            let fraction = Memory::Fraction(Fraction::from_millionths(millionths).unwrap());
            let ranks = RankMemory::Ranks(vec![Bytes::new(bytes), Bytes::new(1)]);
            for given in [fraction, Memory::Total(Bytes::new(bytes)), Memory::PerGpu([(GpuCount::new(2), ranks)].into())] {
                let text = serde_json::to_string(&ModelMemory::from(given.clone())).unwrap();
                prop_assert_eq!(memory(&text), Ok(given.into()), "{}", text);
            }
        }
    }
}
