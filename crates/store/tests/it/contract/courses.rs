//! The catalogue: what is put, and what is found.

use amalgam_core::{
    Scope,
    store::{Course, CoursePage, ImportCounts, Within},
};
use amalgam_knowledge::search::words;
use tokio::task::JoinSet;

use crate::given::*;

fn of(scope: &Scope) -> Within<'_> {
    Within::Own(scope.admin().unwrap())
}

fn course(id: i64, title: &str, tags: &[&str], description: &str) -> Course {
    Course {
        id,
        title: title.into(),
        description: description.into(),
        modality: "Learn".into(),
        kind: "Course".into(),
        status: None,
        content_in_sequence: false,
        min_percentage_finish: 80,
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        assets: Vec::new(),
        url: None,
        progress: 0,
        is_eligible: true,
        in_playlist: false,
        active: true,
    }
}

async fn put(store: &Engine, scope: &Scope, courses: &[Course]) -> ImportCounts {
    store.put_courses(of(scope), courses.to_vec(), NOW).await.unwrap().unwrap()
}

async fn found(store: &Engine, scope: &Scope, question: &str) -> Vec<i64> {
    let page = store.search_courses(scope, &words(question), 0, 99).await.unwrap();
    assert_eq!(page.count, page.courses.len() as u64, "{question}");
    page.courses.iter().map(|course| course.id).collect()
}

pub(crate) async fn courses_are_read_back_as_they_were_put(store: Engine) {
    let anna = anna();
    let full = Course {
        status: Some("Started".into()),
        content_in_sequence: true,
        assets: vec!["video \"one\"".into(), "ujian \\ 2\n".into()],
        url: Some("https://lms.example/28".into()),
        progress: 40,
        is_eligible: false,
        in_playlist: true,
        ..course(28, "Pemrograman \u{1F980} 'dasar'", &["rust", "a:b", "it's"], "Text with 'quotes' & <b>markup</b>.")
    };
    let plain = course(i64::MAX, "", &[], "");
    let both = [full.clone(), plain.clone()];
    assert_eq!(put(&store, &anna, &both).await, ImportCounts { created: 2, updated: 0, unchanged: 0 });
    assert_eq!(store.course(&anna, 28).await.unwrap(), Some(full.clone()));
    assert_eq!(store.course(&anna, plain.id).await.unwrap(), Some(plain));
    assert_eq!(store.course(&scope(1, "bert"), 28).await.unwrap(), Some(full.clone()), "it is the tenant's");
    assert_eq!(store.course(&anna, 29).await.unwrap(), None);

    let gone = Course { active: false, ..full.clone() };
    let lines = [both[1].clone(), gone, course(5, "New", &[], "")];
    assert_eq!(put(&store, &anna, &lines).await, ImportCounts { created: 1, updated: 1, unchanged: 1 });
    assert_eq!(store.course(&anna, 28).await.unwrap(), None, "it is not offered any more");
    assert_eq!(put(&store, &anna, &both).await, ImportCounts { created: 0, updated: 1, unchanged: 1 });
    assert_eq!(store.course(&anna, 28).await.unwrap(), Some(full));
}

pub(crate) async fn courses_are_put_all_or_none(store: Engine) {
    let anna = anna();
    let many: Vec<Course> = (1..=1200).map(|id| course(id, &format!("Course {id}"), &["bulk"], "")).collect();
    assert_eq!(put(&store, &anna, &many).await, ImportCounts { created: 1200, updated: 0, unchanged: 0 });
    assert_eq!(put(&store, &anna, &many).await, ImportCounts { created: 0, updated: 0, unchanged: 1200 });
    assert_eq!(store.search_courses(&anna, &words("bulk"), 0, 1).await.unwrap().count, 1200);
    // Of the same number the last one stays.
    let twice = [course(7, "Seven", &[], ""), course(7, "Seventh", &[], "")];
    assert_eq!(put(&store, &anna, &twice).await, ImportCounts { created: 0, updated: 2, unchanged: 0 });
    assert_eq!(store.course(&anna, 7).await.unwrap(), Some(twice[1].clone()));

    // Imports at once: each course is new once.
    let mut racing = JoinSet::new();
    for _ in 0..6 {
        let store = store.clone();
        racing.spawn(async move {
            let new: Vec<Course> = (5001..=5040).map(|id| course(id, "Raced", &[], "")).collect();
            put(&store, &scope(1, "anna"), &new).await
        });
    }
    let raced = racing.join_all().await;
    assert_eq!(raced.iter().map(|imported| imported.created).sum::<u64>(), 40);
    assert_eq!(raced.iter().map(|imported| imported.unchanged).sum::<u64>(), 200);
}

pub(crate) async fn the_best_course_is_found_first(store: Engine) {
    let anna = anna();
    let catalogue = [
        course(1, "Dasar-dasar analisis data", &["data", "pemula"], "Belajar mengolah data dengan Python."),
        course(2, "Python for beginners", &["programming"], "Variables, loops and functions."),
        course(3, "Leading a team", &["leadership"], "How a manager gives feedback; uses data now and then."),
        course(4, "Kepemimpinan tim", &["leadership"], "Memimpin rapat dan memberi umpan balik."),
        course(5, "Keselamatan kerja", &["safety"], "Pelatihan K3 untuk semua karyawan."),
        course(6, "Advanced Python", &["programming", "data"], "Generators and decorators."),
        Course { active: false, ..course(7, "Python, the old course", &["python"], "Python.") },
    ];
    put(&store, &anna, &catalogue).await;
    for (question, best) in [
        // Title and tags before the description; of equals the smaller number.
        ("python", &[2, 6, 1][..]),
        ("leadership", &[3, 4]),
        ("data", &[1, 6, 3]),
        // The course with more of the words is first.
        ("python data", &[6, 1, 2, 3]),
        ("DATA, Python!", &[6, 1, 2, 3]),
        ("beginner python programming", &[2, 6, 1]),
        // Another form of the word, in either language.
        ("programs", &[2, 6]),
        ("melatih karyawan", &[5]),
        ("memimpin", &[4]),
        ("quantum", &[]),
    ] {
        assert_eq!(found(&store, &anna, question).await, best, "{question}");
    }
    assert_eq!(found(&store, &anna, "").await, [1, 2, 3, 4, 5, 6], "without a word all of them");
    for odd in ["\"", "' OR 1=1 --", "a* NEAR(b)", "python\") OR (\"x", "strong : x", "\\", "\u{0}", " "] {
        let asked = [odd.to_owned()];
        let page = store.search_courses(&anna, &asked, 0, 9).await.unwrap();
        assert_eq!(page, CoursePage { count: 0, courses: Vec::new() }, "S11: {odd}");
    }
}

pub(crate) async fn what_is_found_is_paged(store: Engine) {
    let anna = anna();
    let many: Vec<Course> = (1..=25).map(|id| course(id, "Excel", &[], "")).collect();
    put(&store, &anna, &many).await;
    for question in ["excel", ""] {
        let page = async |offset, limit| {
            let page = store.search_courses(&anna, &words(question), offset, limit).await.unwrap();
            (page.count, page.courses.iter().map(|course| course.id).collect::<Vec<_>>())
        };
        assert_eq!(page(0, 10).await, (25, (1..=10).collect()));
        assert_eq!(page(20, 10).await, (25, (21..=25).collect()));
        assert_eq!(page(25, 10).await, (25, Vec::new()));
        assert_eq!(page(u64::MAX, 10).await, (25, Vec::new()));
        assert_eq!(page(3, 0).await, (25, Vec::new()));
    }
}

pub(crate) async fn a_course_is_found_by_the_words_that_it_has_now(store: Engine) {
    let anna = anna();
    put(&store, &anna, &[course(1, "Cooking", &["kitchen"], "Soup.")]).await;
    put(&store, &anna, &[course(1, "Gardening", &["kitchen"], "Roses.")]).await;
    for (question, expected) in
        [("cooking", &[][..]), ("soup", &[]), ("gardening", &[1]), ("kitchen", &[1]), ("roses", &[1])]
    {
        assert_eq!(found(&store, &anna, question).await, expected, "{question}");
    }
    store.reset(operator(), amalgam_core::store::Reset::Everything).await.unwrap();
    assert_eq!(found(&store, &anna, "kitchen").await, [0; 0]);
    put(&store, &anna, &[course(2, "Kitchen", &[], "")]).await;
    assert_eq!(found(&store, &anna, "kitchen").await, [2]);
}

pub(crate) async fn courses_of_another_tenant_look_missing(store: Engine) {
    // P10, S10
    let (anna, other) = (anna(), scope(2, "anna"));
    put(&store, &anna, &[course(1, "Secret Python", &[], "")]).await;
    assert_eq!(store.course(&other, 1).await.unwrap(), None);
    assert_eq!(found(&store, &other, "python").await, [0; 0]);
    assert_eq!(found(&store, &other, "").await, [0; 0]);
    // The same number of another tenant is another course.
    let theirs = course(1, "Their Java", &[], "");
    assert_eq!(
        put(&store, &other, std::slice::from_ref(&theirs)).await,
        ImportCounts { created: 1, updated: 0, unchanged: 0 }
    );
    assert_eq!(store.course(&other, 1).await.unwrap(), Some(theirs));
    assert_eq!(found(&store, &anna, "java python").await, [1]);
    assert_eq!(store.course(&anna, 1).await.unwrap().unwrap().title, "Secret Python");
    // What others have does not change what comes first.
    let own = [course(11, "Alpha", &[], "Beta."), course(12, "Beta", &[], "Alpha.")];
    put(&store, &anna, &own).await;
    let theirs: Vec<Course> = (20..60).map(|id| course(id, "Alpha", &[], "")).collect();
    put(&store, &other, &theirs).await;
    assert_eq!(found(&store, &anna, "alpha beta").await, [11, 12]);
}
