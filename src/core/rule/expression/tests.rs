use super::*;
use proptest::prelude::*;

/// Half of what a thread has when nothing is said.
const STACK: usize = 1 << 20;

const MIB: f64 = 1024.0 * 1024.0;

/// 1000 MiB, of which 600 are in use, with a quota of 2000 MiB.
const SAMPLE: Values = [
    Some(1000.0 * MIB),
    Some(600.0 * MIB),
    Some(400.0 * MIB),
    Some(2000.0 * MIB),
    Some(0.5),
];

fn parsed(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn rules_of_etcd_defrag_work() {
    for (text, holds) in [
        (
            "dbQuotaUsage > 0.8 || dbSize - dbSizeInUse > 200*1024*1024",
            true,
        ),
        ("dbQuotaUsage > 0.8 || dbSizeFree > 500*1024*1024", false),
        ("dbSizeFree > 419430399", true),
        ("dbSizeFree > 419430400", false),
        ("dbSizeFree >= 419430400", true),
        ("dbQuota - dbSize < 1024 * 1024 * 1024", true),
        ("dbSizeInUse / dbSize < 0.7 && dbSize > 100*1024*1024", true),
        ("dbSize/dbSizeInUse > 2", false),
        (
            "dbSize > 1024*1024*1024 ? dbSizeFree > 0 : dbSizeFree > 300*1024*1024",
            true,
        ),
        ("!(dbQuotaUsage >= 0.5)", false),
        ("dbQuotaUsage == 0.5 && dbQuotaUsage != 1", true),
        ("dbQuotaUsage * 100 > 49", true),
        ("1/2 == dbQuotaUsage", true),
        ("dbSizeFree > 0x100000", true),
        ("dbSizeFree > 1e6 && dbSizeFree > 5u", true),
        ("-dbSizeFree < -1", true),
        ("int(dbQuotaUsage * 3) == 1 && double(1) / 2 == 0.5", true),
        ("true", true),
        ("dbSize > 5 == true", true),
        ("dbSizeFree >\n\t200*1024*1024 // as documented", true),
    ] {
        assert_eq!(parsed(text).evaluate(&SAMPLE), Ok(holds), "{text}");
    }
}

#[test]
fn bad_rules_are_refused_with_a_remedy() {
    for (text, part) in [
        ("", "is empty"),
        (" \n", "is empty"),
        ("dbSize >", "does not parse at line 1"),
        ("dbSize > 1 dbQuota", "does not parse at line 1"),
        ("dbSize > (1", "does not parse"),
        ("dbSize > 1 && || true", "does not parse"),
        ("dbSize = 1", "does not parse"),
        ("dbSize > 99999999999999999999", "does not parse"),
        ("dbsize > 1", "unknown name \"dbsize\""),
        ("foo.bar > 1", "unknown name \".bar\""),
        ("has(dbSize.x)", "unknown name \".x\""),
        ("size(dbSize) > 1", "calls \"size\""),
        ("dbSize.abs() > 1", "calls \"abs\""),
        ("double() > 1", "calls \"double\""),
        ("null == null", "text or null"),
        ("dbSize in dbQuota", "calls \"@in\""),
        ("dbSize % 2 == 0", "uses %"),
        ("[dbSize].exists(x, x > 1)", "has '[' at byte 0"),
        ("dbSize > \"1\"", "has '\"' at byte 9"),
        ("dbSize > 1 and true", "does not parse"),
        ("dbSizeFree ≥ 1", "has '≥' at byte 11"),
        ("dbSizeFree", "gives a number"),
        ("dbSize > 1 ? dbSize : dbQuota", "gives a number"),
        (
            "dbSize > 1 ? dbSize : true",
            "applies ?: to a condition, want a number",
        ),
        (
            "dbSize ? true : false",
            "applies ?: to a number, want a condition",
        ),
        ("dbSize && true", "applies && to a number, want a condition"),
        ("!dbSize", "applies ! to a number"),
        (
            "(dbSize > 1) + 1 > 1",
            "applies + to a condition, want a number",
        ),
        ("1 < dbSize < 3", "applies < to a condition, want a number"),
        ("dbSize == true", "applies == to a condition, want a number"),
        (
            "dbSize > 9007199254740993",
            "9007199254740993, want at most",
        ),
        (
            "dbSize > -9007199254740993",
            "-9007199254740993, want at most",
        ),
    ] {
        let error = Expression::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn size_and_depth_are_bounded() {
    let long = format!("dbSize > {}", "1".repeat(MAX_LEN));
    assert!(matches!(
        Expression::parse(&long),
        Err(ExpressionError::TooLong { .. })
    ));
    let deep = format!("{}true{}", "(".repeat(200), ")".repeat(200));
    assert_eq!(Expression::parse(&deep), Err(ExpressionError::TooComplex));
    let many = format!("dbSize > {}", "1+".repeat(300));
    assert_eq!(Expression::parse(&many), Err(ExpressionError::TooComplex));
    // What is just allowed must fit a thread's stack with room to spare.
    let mut allowed = vec![
        format!("{}true{}", "(".repeat(MAX_DEPTH), ")".repeat(MAX_DEPTH)),
        format!("dbSize > 0{}", "+1".repeat(MAX_OPERATORS - 1)),
        format!("{}true", "!".repeat(MAX_OPERATORS)),
        format!("{}true", "! ".repeat(MAX_OPERATORS)),
        format!("true{}", "||true".repeat(MAX_OPERATORS)),
        format!("{}true", "true?true:".repeat(MAX_DEPTH)),
        format!("{}1 > 0{}", "(1+".repeat(MAX_DEPTH), ")".repeat(MAX_DEPTH)),
    ];
    allowed.push(format!(
        "{}{}",
        "(true?".repeat(MAX_DEPTH),
        "true:true)".repeat(MAX_DEPTH)
    ));
    let parse_all = move || {
        for text in allowed {
            // However deep the parser lets it go, it answers.
            if let Ok(expression) = Expression::parse(&text) {
                assert_eq!(expression.evaluate(&SAMPLE), Ok(true), "{text}");
            }
        }
    };
    let thread = std::thread::Builder::new()
        .stack_size(STACK)
        .spawn(parse_all)
        .expect("a thread");
    thread.join().expect("every answer is a value");
}

#[test]
fn t93_an_unknown_number_is_named_unless_the_rest_decides() {
    let mut no_quota = SAMPLE;
    (no_quota[3], no_quota[4]) = (None, None);
    for (text, outcome) in [
        ("dbQuotaUsage > 0.8", Err(Stop::Missing("dbQuotaUsage"))),
        ("dbSize > dbQuota * 0.8", Err(Stop::Missing("dbQuota"))),
        ("dbQuotaUsage > 0.8 || dbSizeFree > 1", Ok(true)),
        ("dbSizeFree > 1 || dbQuotaUsage > 0.8", Ok(true)),
        (
            "dbQuotaUsage > 0.8 || dbSizeFree < 1",
            Err(Stop::Missing("dbQuotaUsage")),
        ),
        ("dbQuotaUsage > 0.8 && dbSizeFree < 1", Ok(false)),
        ("!(dbQuotaUsage > 0.8)", Err(Stop::Missing("dbQuotaUsage"))),
        ("dbQuotaUsage == 0.0", Err(Stop::Missing("dbQuotaUsage"))),
        ("dbQuotaUsage != 0.0", Err(Stop::Missing("dbQuotaUsage"))),
        (
            "dbQuotaUsage > 0.8 ? true : true",
            Err(Stop::Missing("dbQuotaUsage")),
        ),
    ] {
        assert_eq!(parsed(text).evaluate(&no_quota), outcome, "{text}");
    }
    assert_eq!(
        parsed("dbSize > 1").evaluate(&[None; 5]),
        Err(Stop::Missing("dbSize"))
    );
}

#[test]
fn a_comparison_without_a_value_fails_and_does_not_decide() {
    assert!(matches!(
        parsed("0/0 > dbSize").evaluate(&SAMPLE),
        Err(Stop::NoValue(_))
    ));
    assert!(matches!(
        parsed("int(1e300) > dbSize").evaluate(&SAMPLE),
        Err(Stop::NoValue(_))
    ));
    assert_eq!(parsed("1/0 > dbSize").evaluate(&SAMPLE), Ok(true));
}

#[test]
fn an_expression_is_a_plain_value() {
    fn is_plain<T: Clone + PartialEq + Send + Sync + fmt::Debug + 'static>() {}
    is_plain::<Expression>();
    assert_eq!(parsed("dbSize > 1"), parsed("dbSize > 1"));
    assert_ne!(parsed("dbSize > 1"), parsed("dbSize  > 1"));
    assert_eq!(
        format!("{:?}", parsed("dbSize > 1")),
        "Expression(\"dbSize > 1\")"
    );
}

/// A random expression of the language, as text; whole literals are followed by
/// `suffix`, which is empty for defragd and `.0` for plain CEL.
#[derive(Debug, Clone)]
enum Text {
    Word(&'static str),
    Literal(u32),
    Join(&'static str, Vec<Text>, &'static str),
}

impl Text {
    fn write(&self, suffix: &str) -> String {
        match self {
            Self::Word(word) => (*word).to_owned(),
            Self::Literal(value) => format!("{value}{suffix}"),
            Self::Join(separator, parts, function) => {
                let parts: Vec<_> = parts.iter().map(|part| part.write(suffix)).collect();
                format!("{function}({})", parts.join(separator))
            }
        }
    }
}

fn pair(separator: &'static str, left: Text, right: Text) -> Text {
    Text::Join(separator, vec![left, right], "")
}

fn number() -> impl Strategy<Value = Text> {
    let leaf = prop_oneof![
        (0_u32..5).prop_map(Text::Literal),
        prop::sample::select(VARIABLES.to_vec()).prop_map(Text::Word),
    ];
    leaf.prop_recursive(2, 6, 2, |inner| {
        let operator = prop::sample::select(vec!["+", "-", "*", "/"]);
        prop_oneof![
            3 => (inner.clone(), operator, inner.clone()).prop_map(|(l, o, r)| pair(o, l, r)),
            1 => inner.prop_map(|inner| Text::Join("", vec![inner], "-")),
        ]
    })
}

fn condition() -> impl Strategy<Value = Text> {
    let operator = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let leaf = prop_oneof![
        8 => (number(), operator, number()).prop_map(|(l, o, r)| pair(o, l, r)),
        1 => prop::sample::select(vec!["true", "false"]).prop_map(Text::Word),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let operator = prop::sample::select(vec!["&&", "||", "==", "!="]);
        let two = (inner.clone(), operator, inner.clone()).prop_map(|(l, o, r)| pair(o, l, r));
        let three = (inner.clone(), inner.clone(), inner.clone()).prop_map(|(c, l, r)| {
            Text::Join("", vec![c, Text::Word("?"), l, Text::Word(":"), r], "")
        });
        prop_oneof![
            4 => two,
            1 => three,
            1 => inner.prop_map(|inner| Text::Join("", vec![inner], "!")),
        ]
    })
}

fn values() -> impl Strategy<Value = Values> {
    prop::array::uniform5(prop::option::weighted(0.8, (0_u32..6).prop_map(f64::from)))
}

/// The same text in plain CEL; `None` when it has no value there.
fn by_cel(text: &str, values: &Values) -> Option<bool> {
    let evaluate = || {
        let program = cel::Program::compile(text).expect(text);
        let mut context = cel::Context::default();
        for (name, value) in VARIABLES.into_iter().zip(values) {
            if let Some(value) = value {
                context.add_variable_from_value(name, *value);
            }
        }
        match program.execute(&context) {
            Ok(cel::Value::Bool(holds)) => Some(holds),
            Ok(other) => panic!("{text} gave {other:?}"),
            Err(_) => None,
        }
    };
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(PARSER_STACK);
        let thread = builder.spawn_scoped(scope, evaluate).expect("a thread");
        thread.join().expect("cel answers")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_plain_cel(condition in condition(), values in values()) {
        let text = condition.write("");
        let outcome = match Expression::parse(&text) {
            Ok(expression) => expression.evaluate(&values),
            Err(ExpressionError::TooLong { .. } | ExpressionError::TooComplex) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(format!("{text}: {error}"))),
        };
        let expected = by_cel(&condition.write(".0"), &values);
        prop_assert_eq!(outcome.clone().ok(), expected, "{}: {:?}", text, outcome);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,60}") {
        let _ = Expression::parse(&text);
    }

    #[test]
    fn arbitrary_tokens_never_panic(text in "(dbSize|dbQuota|true|null|in|int|has|all|[0-9]{1,3}|0x|1e|1u|\\.|,|\\(|\\)|\\+|-|\\*|/|%|<|>|=|==|!|&&|&|\\|\\||\\?|:| |\n){0,40}") {
        let _ = Expression::parse(&text);
    }
}
