//! Which line a field stands on.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

use super::fields::beyond_integers;

/// The line of each field of a document, by path. A mapping's entry is where
/// its key stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Lines {
    first: usize,
    by_path: BTreeMap<String, usize>,
    /// A field that stands a second time, and the line where it does.
    twice: Option<(String, usize)>,
    beyond: Vec<Beyond>,
}

/// A value that is a whole number and fits no integer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Beyond {
    pub(super) path: String,
    /// Where it begins in the document, in characters.
    pub(super) at: usize,
    pub(super) digits: String,
}

/// What encloses the next event.
enum Frame {
    /// The path of the mapping and the path of the value that comes next.
    Mapping(String, Option<String>),
    /// The path of the sequence and the index of the item that comes next.
    Sequence(String, usize),
}

impl Lines {
    /// Reads a document that another parser has accepted; should this one stop
    /// early, the rest of the fields get the line of what is around them.
    /// `before` is the number of lines in front of the document.
    pub(super) fn of_document(text: &str, before: usize) -> Lines {
        let mut lines = Lines::default();
        let mut stack: Vec<Frame> = Vec::new();
        let mut parser = Parser::new_from_str(text);
        while let Some(Ok((event, span))) = parser.next_event() {
            let line = before + span.start.line();
            match event {
                Event::MappingEnd | Event::SequenceEnd => {
                    stack.pop();
                    continue;
                }
                Event::Scalar(..)
                | Event::Alias(_)
                | Event::MappingStart(..)
                | Event::SequenceStart(..) => {}
                _ => continue,
            }
            if lines.first == 0 {
                lines.first = line;
            }
            let path = match stack.last_mut() {
                None => String::new(),
                Some(Frame::Sequence(path, index)) => {
                    let item = format!("{path}[{index}]");
                    *index += 1;
                    lines.by_path.insert(item.clone(), line);
                    item
                }
                Some(Frame::Mapping(path, next)) => match next.take() {
                    Some(value) => value,
                    None => {
                        if let Event::Scalar(key, ..) = &event {
                            let field = join(path, key);
                            if lines.by_path.contains_key(&field) {
                                lines.twice.get_or_insert((field.clone(), line));
                            } else {
                                lines.by_path.insert(field.clone(), line);
                            }
                            *next = Some(field);
                            continue;
                        }
                        // A key that is no scalar; the other parser refuses it.
                        return lines;
                    }
                },
            };
            match event {
                Event::Scalar(text, ScalarStyle::Plain, _, None) if beyond_integers(&text) => {
                    lines.beyond.push(Beyond {
                        path,
                        at: span.start.index(),
                        digits: text.into_owned(),
                    });
                }
                Event::MappingStart(..) => stack.push(Frame::Mapping(path, None)),
                Event::SequenceStart(..) => stack.push(Frame::Sequence(path, 0)),
                _ => {}
            }
        }
        if lines.first == 0 {
            lines.first = before + 1;
        }
        lines
    }

    /// The first line with content.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    /// The first field that stands twice in one object: path, line, first line.
    pub(super) fn twice(&self) -> Option<(&str, usize, usize)> {
        let (path, line) = self.twice.as_ref()?;
        Some((path, *line, self.of(path)?))
    }

    /// Numbers that fit no integer, in order.
    pub(super) fn beyond(&self) -> &[Beyond] {
        &self.beyond
    }

    /// The line of a field, or of the nearest field around it.
    pub(super) fn of(&self, path: &str) -> Option<usize> {
        let mut path = path;
        loop {
            if let Some(line) = self.by_path.get(path) {
                return Some(*line);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// A field of an object; keys with dots (labels) are not told apart, the lines
/// of the nearest field around them serve.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
