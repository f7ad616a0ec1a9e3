//! Files with model entries.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, DeserializeSeed, IntoDeserializer, MapAccess, SeqAccess};
use serde::{Deserialize, Deserializer, Serialize};

use crate::ModelRequest;

/// The models of one file: `[[model]]` tables, a list, or a single model. Each has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ModelFile {
    /// The models in the order of the file.
    pub model: Vec<ModelRequest>,
}

impl<'de> Deserialize<'de> for ModelFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FileVisitor)
    }
}

struct FileVisitor;

impl<'de> de::Visitor<'de> for FileVisitor {
    type Value = ModelFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[[model]] tables, a list of models, or one model")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ModelFile, A::Error> {
        let mut model = Vec::new();
        while let Some(Named(one)) = list.next_element()? {
            model.push(one);
        }
        Ok(ModelFile { model })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ModelFile, A::Error> {
        let Some(first) = map.next_key::<String>()? else { return Ok(ModelFile::default()) };
        if first == "model" {
            let models: Vec<Named> = map.next_value()?;
            return match map.next_key::<String>()? {
                Some(other) => Err(de::Error::unknown_field(&other, &["model"])),
                None => Ok(ModelFile { model: models.into_iter().map(|Named(one)| one).collect() }),
            };
        }
        let one =
            Named::deserialize(MapAccessDeserializer::new(Again { first: Some(first), rest: map, of: PhantomData }))?;
        Ok(ModelFile { model: vec![one.0] })
    }
}

/// A model entry that states its name.
struct Named(ModelRequest);

impl<'de> Deserialize<'de> for Named {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let model = ModelRequest::deserialize(deserializer)?;
        if model.name.is_none() { Err(de::Error::missing_field("name")) } else { Ok(Self(model)) }
    }
}

/// A map whose first key was already read.
struct Again<'de, A> {
    first: Option<String>,
    rest: A,
    of: PhantomData<&'de ()>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Again<'de, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.rest.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.rest.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(file: &ModelFile) -> Vec<&str> {
        file.model.iter().filter_map(|model| model.name.as_ref()).map(berth_domain::ModelName::as_str).collect()
    }

    #[test]
    fn tables_lists_and_single_models_are_read() {
        let toml = "[[model]]\nname = \"a\"\nruntime = \"vllm\"\nmemory = \"39GiB\"\n\n[[model]]\nname = \"b\"\nruntime = \"vllm\"\n[model.memory.per_gpu]\n1 = \"74GiB\"\n2 = [\"44GiB\", \"40GiB\"]\n";
        assert_eq!(names(&toml::from_str(toml).unwrap()), ["a", "b"]);
        assert_eq!(names(&toml::from_str("name = \"a\"\nruntime = \"vllm\"\n").unwrap()), ["a"]);
        assert_eq!(names(&serde_json::from_str("[{\"name\": \"a\", \"runtime\": \"vllm\"}]").unwrap()), ["a"]);
        assert_eq!(names(&serde_json::from_str("{\"runtime\": \"vllm\", \"name\": \"a\"}").unwrap()), ["a"]);
        let models = "{\"model\": [{\"name\": \"a\", \"runtime\": \"vllm\"}]}";
        assert_eq!(names(&serde_json::from_str(models).unwrap()), ["a"]);
    }

    #[test]
    fn b2_typos_and_missing_names_are_refused() {
        let said = |text: &str| toml::from_str::<ModelFile>(text).unwrap_err().to_string();
        assert!(said("[[model]]\nname = \"a\"\nruntime = \"v\"\nmemroy = 1\n").contains("memroy"));
        assert!(said("[[model]]\nruntime = \"v\"\n").contains("missing field `name`"));
        assert!(said("[[models]]\nname = \"a\"\n").contains("models"));
        assert!(said("[[model]]\nname = \"a\"\nruntime = \"v\"\n[other]\n").contains("other"));
        assert!(said("name = \"a\"\nruntime = \"v\"\nmemory = nan\n").contains("no whole number of bytes"), "b1");
        assert!(said("name = \"../a\"\nruntime = \"v\"\n").contains("path segment"));
    }
}
