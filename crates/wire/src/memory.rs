//! A model's memory in all the forms that people write.

use std::collections::BTreeMap;
use std::fmt;

use berth_domain::{Bytes, Fraction, GpuCount, Memory, RankMemory};
use serde::de::{self, MapAccess, SeqAccess};
use serde::ser::{Error as _, SerializeMap, SerializeStruct};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{
    AdditionalProperties, ArrayBuilder, ObjectBuilder, OneOfBuilder, Ref, Schema, SchemaType, Type,
};
use utoipa::{PartialSchema, ToSchema};

use crate::schema::NeededSize;

/// How much memory a model needs: `"39GiB"`, whole bytes, `{"total": …}`, `{"per_gpu": {"1": …, "2": … or […]}}` or
/// `{"fraction": 0.5}`. It goes out as one of the three objects, in whole bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelMemory(pub Memory);

impl ModelMemory {
    const FORMS: &'static [&'static str] = &["total", "per_gpu", "fraction"];
}

impl From<Memory> for ModelMemory {
    fn from(memory: Memory) -> Self {
        Self(memory)
    }
}

/// A size that is more than nothing. Unknown memory is left out, never zero.
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
        f.write_str("a size such as \"39GiB\", or an object with one of total, per_gpu and fraction")
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<ModelMemory, E> {
        needed(Bytes::new(number)).map(|bytes| ModelMemory(Memory::Total(bytes)))
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
        needed(bytes).map(|bytes| ModelMemory(Memory::Total(bytes)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelMemory, A::Error> {
        let mut read: Option<Memory> = None;
        while let Some(form) = map.next_key::<String>()? {
            let memory = match form.as_str() {
                "total" => Memory::Total(map.next_value::<Needed>()?.0),
                "per_gpu" => Memory::PerGpu(map.next_value::<PerGpu>()?.0),
                "fraction" => Memory::Fraction(map.next_value::<Fraction>()?),
                "file" => return Err(de::Error::custom("memory from a file: not yet: state the memory")),
                _ => return Err(de::Error::unknown_field(&form, ModelMemory::FORMS)),
            };
            if read.replace(memory).is_some() {
                return Err(de::Error::custom("memory has one of total, per_gpu and fraction, not several"));
            }
        }
        read.map(ModelMemory).ok_or_else(|| de::Error::custom("memory needs one of total, per_gpu and fraction"))
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
        let mut object = serializer.serialize_struct("ModelMemory", 1)?;
        match &self.0 {
            Memory::Total(bytes) => object.serialize_field("total", bytes)?,
            Memory::PerGpu(counts) => object.serialize_field("per_gpu", &Counts(counts))?,
            Memory::Fraction(fraction) => {
                let number = f64::from(fraction.millionths()) / f64::from(Fraction::WHOLE);
                // The shortest text of this number is the fraction as it was written, so it comes back the same.
                if number.to_string().parse() != Ok(*fraction) {
                    return Err(S::Error::custom("a fraction that is no number"));
                }
                object.serialize_field("fraction", &number)?;
            }
        }
        object.end()
    }
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
        let fraction = typed(Type::Number)
            .exclusive_minimum(Some(0))
            .maximum(Some(1))
            .description(Some("A fraction of each GPU's capacity, with at most six decimals."));
        let several = json!({"per_gpu": {"1": "74GiB", "2": ["44GiB", "40GiB"]}});
        OneOfBuilder::new()
            .item(size())
            .item(object().property("total", size()).required("total"))
            .item(object().property("per_gpu", per_gpu).required("per_gpu"))
            .item(object().property("fraction", fraction).required("fraction"))
            .description(Some(
                "How much memory it needs: one number that is split over its GPUs, a number for each GPU count, or a \
                 fraction of a GPU. It goes out as one of the objects, in whole bytes.",
            ))
            .examples([json!("39GiB"), several, json!({"fraction": 0.5})])
            .into()
    }
}

impl ToSchema for ModelMemory {
    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push((NeededSize::name().into_owned(), NeededSize::schema()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{BodyError, read};
    use proptest::prelude::*;

    fn memory(text: &str) -> Result<Memory, BodyError> {
        #[derive(Deserialize)]
        struct Body {
            memory: ModelMemory,
        }
        read::<Body>(format!("{{\"memory\": {text}}}").as_bytes()).map(|body| body.memory.0)
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
            assert_eq!(memory(text), Ok(total.clone()), "{text}");
        }
        assert_eq!(memory("\"74.49GiB\""), Ok(Memory::Total(Bytes::new(79_983_028_470))), "b1");
        let half = Fraction::from_millionths(500_000).unwrap();
        assert_eq!(memory("{\"fraction\": 0.5}"), Ok(Memory::Fraction(half)));
        assert_eq!(memory("{\"fraction\": \"0.5\"}"), Ok(Memory::Fraction(half)));
        let per_gpu = BTreeMap::from([
            (GpuCount::new(1), RankMemory::Even(Bytes::gib(74))),
            (GpuCount::new(2), RankMemory::Ranks(vec![Bytes::gib(44), Bytes::gib(40)])),
        ]);
        let text = "{\"per_gpu\": {\"1\": \"74GiB\", \"2\": [\"44GiB\", 42949672960]}}";
        assert_eq!(memory(text), Ok(Memory::PerGpu(per_gpu)));
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
            ("{\"file\": \"/models/a.gguf\"}", "not yet: state the memory"),
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
        ] {
            assert_eq!(refused(text).0, field, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_goes_out_comes_back(millionths in 1u32..=1_000_000, bytes in 1u64..) {
            let fraction = Memory::Fraction(Fraction::from_millionths(millionths).unwrap());
            let ranks = RankMemory::Ranks(vec![Bytes::new(bytes), Bytes::new(1)]);
            for given in [fraction, Memory::Total(Bytes::new(bytes)), Memory::PerGpu([(GpuCount::new(2), ranks)].into())] {
                let text = serde_json::to_string(&ModelMemory(given.clone())).unwrap();
                prop_assert_eq!(memory(&text), Ok(given), "{}", text);
            }
        }
    }
}
