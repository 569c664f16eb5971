use super::*;

fn chain(length: u64) -> Vec<AuditRow> {
    let mut previous = CHAIN_START;
    let rows = (1..=length).map(|number| {
        let actor = Actor::command(Some("host".to_owned()));
        let draft = actor.change(number * 10, 7, AuditAction::new("mode.put"), format!("mode {number}"));
        let row = AuditRow { number, hash: draft.hash(number, &previous), content: draft, previous };
        previous = row.hash;
        row
    });
    rows.collect()
}

fn head(rows: &[AuditRow]) -> Option<AuditHead> {
    rows.last().map(|row| AuditHead { number: row.number, hash: row.hash })
}

fn problems(rows: &[AuditRow], head: Option<AuditHead>) -> Vec<(u64, AuditProblem)> {
    let mut check = AuditCheck::default();
    rows.iter().for_each(|row| check.row(row));
    check.finish(head).2.into_iter().map(|found| (found.number, found.problem)).collect()
}

#[test]
fn a_chain_as_it_was_written_has_no_break() {
    assert_eq!(problems(&[], None), []);
    let rows = chain(5);
    assert_eq!(problems(&rows, head(&rows)), []);
}

#[test]
fn every_field_of_a_row_is_covered_by_its_hash() {
    let rows = chain(3);
    let text = || Some("x".to_owned());
    let changes: [fn(&mut AuditRow); 12] = [
        |row| row.content.id.push('x'),
        |row| row.content.at_ms += 1,
        |row| row.content.tenant_id += 1,
        |row| row.content.actor.kind.push('x'),
        |row| row.content.actor.key_id = Some("x".to_owned()),
        |row| row.content.actor.user = Some("x".to_owned()),
        |row| row.content.actor.origin = None,
        |row| row.content.action.push('x'),
        |row| row.content.object.push('x'),
        |row| row.content.object_id.push('x'),
        |row| row.content.before = Some("1".to_owned()),
        |row| row.content.after = Some("1".to_owned()),
    ];
    for change in changes {
        let mut changed = rows.clone();
        change(&mut changed[1]);
        assert_eq!(problems(&changed, head(&rows)), [(2, AuditProblem::Changed)], "{:?}", changed[1]);
    }
    // A text cannot move from one field to the next.
    let mut one = rows[0].content.clone();
    (one.actor.key_id, one.actor.user) = (text(), None);
    let mut other = one.clone();
    (other.actor.key_id, other.actor.user) = (None, text());
    assert_ne!(one.hash(1, &CHAIN_START), other.hash(1, &CHAIN_START));
}

#[test]
fn a_row_that_was_removed_replaced_or_reordered_is_named() {
    let rows = chain(4);
    let without = |at: usize| [&rows[..at], &rows[at + 1..]].concat();
    assert_eq!(problems(&without(1), head(&rows)), [(2, AuditProblem::Missing)]);
    assert_eq!(problems(&without(3), head(&rows)), [(4, AuditProblem::Missing)]);
    assert_eq!(problems(&rows[..2], head(&rows)), [(3, AuditProblem::Missing), (4, AuditProblem::Missing)]);
    assert_eq!(problems(&rows, head(&rows[..3])), [(4, AuditProblem::Unknown)]);

    let mut reordered = rows.clone();
    reordered.swap(1, 2);
    (reordered[1].number, reordered[2].number) = (2, 3);
    let found = problems(&reordered, head(&rows));
    assert!(found.contains(&(2, AuditProblem::Changed)) && found.contains(&(3, AuditProblem::Changed)), "{found:?}");

    // Also with a hash that fits its new content, since the next row contains the earlier hash.
    let mut replaced = rows.clone();
    replaced[1].content.object_id = "other".to_owned();
    replaced[1].hash = replaced[1].content.hash(2, &replaced[1].previous);
    assert_eq!(problems(&replaced, head(&rows)), [(3, AuditProblem::Unlinked)]);
}
