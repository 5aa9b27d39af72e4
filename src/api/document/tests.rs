use super::*;

fn errors(text: &str) -> String {
    let parsed = parse("p.yaml", text);
    let mut all: Vec<DocumentError> = parsed.errors;
    for object in &parsed.objects {
        all.extend(object.value.errors().iter().map(|e| object.locate(e)));
    }
    all.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}
