//! YAML text to objects: several documents a file, every error with its file,
//! line and field, and a bad document never stops the others.

mod fields;
mod lines;

use std::borrow::Cow;
use std::fmt;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::lines::{Beyond, Lines};
use super::defrag::EtcdDefrag;
use super::policy::EtcdDefragPolicy;
use super::target::EtcdTarget;
use super::validate::{FieldError, Place, quoted};
use super::{API_VERSION, crds};

/// Largest file that is read, in bytes.
pub const MAX_FILE: usize = 4 << 20;

/// An object of one of the kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Target(Box<EtcdTarget>),
    Policy(Box<EtcdDefragPolicy>),
    Run(Box<EtcdDefrag>),
}

impl Object {
    /// The kind as it stands in a manifest.
    pub const fn kind(&self) -> &'static str {
        match self {
            Object::Target(_) => "EtcdTarget",
            Object::Policy(_) => "EtcdDefragPolicy",
            Object::Run(_) => "EtcdDefrag",
        }
    }

    fn metadata(&self) -> &kube::core::ObjectMeta {
        match self {
            Object::Target(object) => &object.metadata,
            Object::Policy(object) => &object.metadata,
            Object::Run(object) => &object.metadata,
        }
    }

    /// `metadata.name`; never empty in an object that [`parse`] gave.
    pub fn name(&self) -> &str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`, empty when there is none.
    pub fn namespace(&self) -> &str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    /// What tells it from every other object.
    pub fn key(&self) -> (&'static str, &str, &str) {
        (self.kind(), self.namespace(), self.name())
    }

    /// Everything that [`super::validate`] has against it.
    pub fn errors(&self, place: Place) -> Vec<FieldError> {
        match self {
            Object::Target(object) => super::validate::target(object, place).err(),
            Object::Policy(object) => super::validate::policy(object, place).err(),
            Object::Run(object) => super::validate::run(object, place).err(),
        }
        .unwrap_or_default()
    }
}

/// A value and the place it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct Located<T> {
    pub value: T,
    /// The file's label.
    pub file: String,
    /// The line where the document begins, from 1.
    pub line: usize,
    lines: Lines,
}

impl<T> Located<T> {
    /// The line of a field such as `spec.windows[0].start`, or of the nearest
    /// field around it when it does not stand in the file.
    pub fn line_of(&self, path: &str) -> usize {
        self.lines.of(path).unwrap_or(self.line)
    }

    /// A field's error with its place.
    pub fn locate(&self, error: &FieldError) -> DocumentError {
        DocumentError {
            file: self.file.clone(),
            line: self.line_of(&error.path),
            path: error.path.clone(),
            message: format!("{}; {}", error.problem, error.remedy),
        }
    }
}

impl Located<Object> {
    /// Everything that [`super::validate`] has against the object, by line.
    pub fn errors(&self, place: Place) -> Vec<DocumentError> {
        let errors = self.value.errors(place);
        let mut errors: Vec<DocumentError> = errors.iter().map(|e| self.locate(e)).collect();
        errors.sort_by_key(|e| e.line);
        errors
    }
}

/// What is wrong with a document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DocumentError {
    /// The file's label.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// The field; empty when the document as a whole is meant.
    pub path: String,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// What a text held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Objects whose fields exist and have the right types, in order. Their
    /// values are for [`super::validate`] to judge.
    pub objects: Vec<Located<Object>>,
    /// Everything else, in order.
    pub errors: Vec<DocumentError>,
}

impl Parsed {
    /// Adds what another file held. An object that was there already is an
    /// error; the first one stays.
    pub fn merge(&mut self, other: Parsed) {
        self.errors.extend(other.errors);
        for object in other.objects {
            self.add(object);
        }
    }

    fn add(&mut self, object: Located<Object>) {
        let Some(first) = self
            .objects
            .iter()
            .find(|o| o.value.key() == object.value.key())
        else {
            self.objects.push(object);
            return;
        };
        let path = "metadata.name";
        self.errors.push(DocumentError {
            line: object.line_of(path),
            path: path.to_owned(),
            message: format!(
                "{} {} is given twice, first at {}:{}; rename or remove one of them",
                object.value.kind(),
                quoted(object.value.name()),
                first.file,
                first.line_of(path),
            ),
            file: object.file,
        });
    }
}

/// Reads all documents of a text. `file` labels the errors.
pub fn parse(file: impl AsRef<Path>, text: &str) -> Parsed {
    let file = file.as_ref().display().to_string();
    let mut parsed = Parsed::default();
    if text.len() > MAX_FILE {
        parsed.errors.push(DocumentError {
            file,
            line: 1,
            path: String::new(),
            message: format!(
                "the file has {} bytes, more than {MAX_FILE}; split it",
                text.len()
            ),
        });
        return parsed;
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (line, document) in split(text) {
        match object(&file, line, document) {
            Ok(Some(object)) => parsed.add(object),
            Ok(None) => {}
            Err(errors) => parsed.errors.extend(errors),
        }
    }
    parsed
}

/// The documents of a stream and the line before each. A line that begins with
/// `---` or `...` is a marker wherever it stands, also after a syntax error; so
/// one broken document cannot swallow the next.
fn split(text: &str) -> Vec<(usize, &str)> {
    let mut documents = Vec::new();
    let (mut start, mut first_line, mut offset) = (0, 0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let is_marker = |marker: &str| {
            line.strip_prefix(marker)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        };
        if is_marker("---") {
            documents.push((first_line, &text[start..offset]));
            (start, first_line) = (offset, number);
        } else if is_marker("...") {
            documents.push((first_line, &text[start..offset]));
            (start, first_line) = (offset + line.len(), number + 1);
        }
        offset += line.len();
    }
    documents.push((first_line, &text[start..]));
    documents
}

/// One document; `before` is the number of lines in front of it. `None` when
/// it is empty.
fn object(
    file: &str,
    before: usize,
    text: &str,
) -> Result<Option<Located<Object>>, Vec<DocumentError>> {
    let error = |line: usize, path: &str, message: String| DocumentError {
        file: file.to_owned(),
        line,
        path: path.to_owned(),
        message,
    };
    let lines = Lines::of_document(text, before);
    let text = quoting(text, lines.beyond());
    let value: serde_yaml::Value = serde_yaml::from_str(&text).map_err(|e| {
        vec![match lines.twice() {
            Some((path, line, first)) => error(
                line,
                path,
                format!("the field is given twice, first at line {first}; remove one of them"),
            ),
            None => {
                let line = before + e.location().map_or(1, |at| at.line().max(1));
                error(line, "", format!("not YAML: {e}; correct the syntax"))
            }
        }]
    })?;
    if value.is_null() {
        return Ok(None);
    }
    let start = lines.first();
    let located = |errors: Vec<FieldError>| -> Vec<DocumentError> {
        let mut located: Vec<DocumentError> = errors
            .into_iter()
            .map(|e| {
                let line = lines.of(&e.path).unwrap_or(start);
                error(line, &e.path, format!("{}; {}", e.problem, e.remedy))
            })
            .collect();
        located.sort_by_key(|e| e.line);
        located
    };
    let mut errors = Vec::new();
    let mut value = fields::to_json(&value, "", &mut errors);
    if !errors.is_empty() {
        return Err(located(errors));
    }

    let kind = header(&value, &mut errors);
    let schema = kind.and_then(|kind| crds::spec_schemas().iter().find(|(name, _)| name == kind));
    let Some((kind, schema)) = schema else {
        return Err(located(errors));
    };
    let kind = kind.clone();
    fields::check(&value, schema, &mut errors);
    if !fields::only_unknown(&errors) {
        return Err(located(errors));
    }
    // A status in a manifest is a copy of what a host wrote once; the host's own
    // state counts, and nothing else may claim that a run has ended.
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    let decoded = match kind.as_str() {
        "EtcdTarget" => decode(value).map(|object| Object::Target(Box::new(object))),
        "EtcdDefragPolicy" => decode(value).map(|object| Object::Policy(Box::new(object))),
        _ => decode(value).map(|object| Object::Run(Box::new(object))),
    };
    let value = decoded.map_err(|e| located(vec![e]))?;
    let beyond = lines.beyond();
    if !errors.is_empty() || !beyond.is_empty() {
        errors.extend(value.errors(Place::Anywhere));
        // In quotes it may have passed as a text, which it is not.
        for number in beyond {
            if !errors.iter().any(|error| error.path == number.path) {
                errors.push(FieldError::new(
                    &number.path,
                    &number.digits,
                    "is a number too large to be read",
                    "put it in quotes if it is meant as a text",
                ));
            }
        }
        return Err(located(errors));
    }
    Ok(Some(Located {
        value,
        file: file.to_owned(),
        line: start,
        lines,
    }))
}

/// The document with `numbers` in quotes. The parser has no place for them and
/// would call them a syntax error; as texts they reach the checks of their fields.
fn quoting<'a>(text: &'a str, numbers: &[Beyond]) -> Cow<'a, str> {
    let mut quoted = Cow::Borrowed(text);
    // From the end, so that the places before it stay.
    for Beyond { at, digits, .. } in numbers.iter().rev() {
        if let Some((start, _)) = text.char_indices().nth(*at)
            && text[start..].starts_with(digits)
        {
            let end = start + digits.len();
            quoted
                .to_mut()
                .replace_range(start..end, &format!("\"{digits}\""));
        }
    }
    quoted
}

fn decode<T: DeserializeOwned>(value: Value) -> Result<T, FieldError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        FieldError::new(path, "", error.into_inner(), "correct the field")
    })
}

/// Checks what stands around the spec; gives the kind when it is one of ours.
fn header<'a>(value: &'a Value, errors: &mut Vec<FieldError>) -> Option<&'a str> {
    let kinds: Vec<&str> = crds::spec_schemas()
        .iter()
        .map(|(kind, _)| kind.as_str())
        .collect();
    if !value.is_object() {
        let problem = format!("the document is {}, not an object", fields::kind_of(value));
        errors.push(FieldError::new(
            "",
            "",
            problem,
            "write apiVersion, kind, metadata and spec",
        ));
        return None;
    }
    let text = |field: &str| value.get(field).and_then(Value::as_str);
    let version = text("apiVersion");
    let kind = text("kind");
    let ours = kind.filter(|kind| kinds.contains(kind));
    match version {
        Some(version) if version == API_VERSION => {}
        Some(version) => {
            let remedy = if version.starts_with("defragd.dev/") || ours.is_some() {
                format!("write {API_VERSION:?}")
            } else {
                "keep only defragd's objects in these files".to_owned()
            };
            errors.push(FieldError::new(
                "apiVersion",
                quoted(version),
                "is not one of defragd's",
                remedy,
            ));
        }
        None => errors.push(FieldError::new(
            "apiVersion",
            "",
            "it is missing or no text",
            format!("write {API_VERSION:?}"),
        )),
    }
    match (ours, kind) {
        (Some(_), _) => {}
        (None, Some(kind)) => {
            let remedy = fields::meant(kind, &kinds).map_or_else(
                || format!("write one of {}", kinds.join(", ")),
                |k| format!("did you mean {k:?}?"),
            );
            errors.push(FieldError::new(
                "kind",
                quoted(kind),
                "is not one of defragd's kinds",
                remedy,
            ));
        }
        (None, None) => errors.push(FieldError::new(
            "kind",
            "",
            "it is missing or no text",
            format!("write one of {}", kinds.join(", ")),
        )),
    }
    if version != Some(API_VERSION) {
        None
    } else {
        ours
    }
}

#[cfg(test)]
mod tests;
