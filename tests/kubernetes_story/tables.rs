//! What `kubectl get` prints, as golden text.

/// Between two columns.
const GAP: &str = "   ";

/// Tables without what differs from one time to the next: ages, and these texts, each of which is
/// replaced by what stands for it.
pub(crate) fn golden(tables: &str, volatile: &[(&str, &str)]) -> String {
    let tables = tables.trim().split("\n\n");
    let tables = tables.map(|text| table(text, volatile));
    tables.collect::<Vec<_>>().join("\n\n")
}

fn table(text: &str, volatile: &[(&str, &str)]) -> String {
    let starts = columns(text.lines().next().unwrap_or_default());
    let row = |line: &str| -> Vec<String> {
        let ends = starts.iter().skip(1).copied().chain([line.len()]);
        let cells = starts.iter().zip(ends);
        let cells = cells.map(|(from, to)| line.get(*from..to.min(line.len())).unwrap_or_default());
        cells.map(|text| cell(text.trim(), volatile)).collect()
    };
    let rows: Vec<Vec<String>> = text.lines().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let padded = |row: &Vec<String>| {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(column, cell)| format!("{cell:<0$}", width(column)));
        cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
    };
    rows.iter().map(padded).collect::<Vec<_>>().join("\n")
}

/// Where the columns begin: their names may have single spaces in them.
fn columns(header: &str) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    for name in header.split(GAP) {
        let blank = name.len() - name.trim_start().len();
        if blank < name.len() {
            starts.push(at + blank);
        }
        at += name.len() + GAP.len();
    }
    starts
}

fn cell(text: &str, volatile: &[(&str, &str)]) -> String {
    let is_age = !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_digit() || "smhd".contains(c))
        && text.ends_with(['s', 'm', 'h', 'd']);
    if is_age {
        return "(age)".to_owned();
    }
    let mut text = text.to_owned();
    for (seen, said) in volatile {
        text = text.replace(seen, said);
    }
    text
}

#[test]
fn empty_cells_and_long_ones_stay_in_their_columns() {
    let seen = "NAME       LAST RUN   AGE\npolicy-5              5s\na          3m12s      5s\n\n\
                KIND   B\n       1";
    let wanted = "NAME     LAST RUN   AGE\npolicy              (age)\na        (age)      (age)\n\n\
                  KIND   B\n       1";
    assert_eq!(golden(seen, &[("policy-5", "policy")]), wanted);
}
