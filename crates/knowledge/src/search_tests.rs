use proptest::prelude::*;

use super::*;

fn alone(word: &str) -> String {
    let [stem] = <[String; 1]>::try_from(words(word)).unwrap_or_else(|words| panic!("{word} gives {words:?}"));
    stem
}

#[test]
fn words_of_a_family_meet() {
    for family in [
        // Indonesian
        "kepemimpinan pemimpin memimpin dipimpin pimpinan kepemimpinannya",
        "pelatihan latihan melatih berlatih pelatih terlatih",
        "pembelajaran belajar pelajaran mengajar pengajar ajar",
        "pengembangan mengembangkan perkembangan berkembang dikembangkan",
        "pemasaran pasar memasarkan dipasarkan",
        "penjualan menjual jual penjual terjual",
        "keuangan uang",
        "keputusan memutuskan putus",
        "penulisan menulis penulis tulisan ditulis",
        "pengelolaan mengelola pengelola kelola",
        "komunikasi mengkomunikasikan komunikasinya",
        "pelayanan melayani layanan layan",
        "keamanan mengamankan aman pengamanan",
        "perencanaan merencanakan rencana",
        "penyusunan menyusun susunan",
        "pemrograman program memprogram",
        "keselamatan selamat",
        "pengukuran mengukur ukuran terukur",
        "kreatif kreatifnya kreativitas",
        "menimbang pertimbangan mempertimbangkan timbang",
        "pendaftaran mendaftar daftar terdaftar",
        // English
        "evaluation evaluations evaluate evaluating evaluated evaluates evaluator evaluative",
        "leadership leader leaders leading lead led",
        "management manager managers managing manage managed managerial",
        "training trainings trainer trainers trained train",
        "communication communicate communicating communicator communications",
        "negotiation negotiate negotiating negotiator negotiations",
        "programming programmer programs programmed",
        "development developer developing develop developed",
        "presentation presentations presenting presenter present",
        "security secure securely secured",
        "productivity productive productively",
        "company companies",
        "strategy strategies strategic",
        "analysis analyses analyst analyze analyzing analytics",
        "certification certify certified certificate certificates",
        "organization organisation organize organising organizer organizations",
        "coding codes code coded",
        "finance financial finances",
        "writing write writer written writes",
        "plan planning planner plans planned",
        "control controlled controller controls controlling",
        "computer computing compute computers",
        "competence competency competencies competent",
        "creative creativity creation create creating creator",
        // Borrowed words in both
        "evaluasi mengevaluasi evaluation",
        "motivasi memotivasi motivation",
        "organisasi mengorganisasi organization",
        "implementasi mengimplementasikan implementation implement",
        "transformasi mentransformasikan transformation transform",
        "presentasi presentation",
    ] {
        let stems: HashSet<String> = family.split(' ').map(alone).collect();
        assert_eq!(stems.len(), 1, "{family}: {stems:?}");
    }
}

#[test]
fn words_of_different_families_stay_apart() {
    for pair in [
        "kepemimpinan leadership",
        "kepemimpinan mimpi",
        "pelatihan penelitian",
        "pengalaman pengelolaan",
        "pemasaran pemeriksaan",
        "penjualan perjalanan",
        "belajar berjalan",
        "masak pasok",
        "menimbang seimbang",
        "langkah lang",
        "memikat mengikat",
        "manajer manusia",
        "digital digit",
        "business busy",
        "customer custom",
        "experience experiment",
        "universe unit",
        "important import",
        "template temple",
        "number numb",
        "general generate",
        "community communication",
        "career care",
        "station state",
        "member memory",
        "policy police",
        "new news",
        "data date",
        "mentor mental",
        "factor fact",
        "ethics ethnic",
        "process profession",
    ] {
        let (one, other) = pair.split_once(' ').unwrap();
        assert_ne!(alone(one), alone(other), "{pair}");
    }
}

#[test]
fn a_question_is_reduced_to_what_it_is_about() {
    // RNCC-38: the question of the seed's second example.
    assert_eq!(words("Berikan saya rekomendasi course mengenai kepemimpinan"), ["pimpin"]);
    assert_eq!(words("Please recommend me some courses about Data Science!"), ["data", "scienc"]);
    assert_eq!(words("the what of it"), Vec::<String>::new());
    assert_eq!(words(""), Vec::<String>::new());
}

#[test]
fn accents_case_apostrophes_and_hyphens_make_no_difference() {
    assert_eq!(words("Résumé"), words("RESUME"));
    assert_eq!(words("re\u{301}sume\u{301}"), words("résumé"));
    assert_eq!(words("a leader\u{2019}s guide"), words("leaders guide"));
    assert_eq!(words("buku-buku"), words("buku"));
    assert_eq!(words("İstanbul STRASSE straße"), ["istanbul", "strass"]);
    assert_eq!(words("K3 ISO-9001 管理"), ["k3", "iso", "9001", "管理"]);
}

#[test]
fn each_word_comes_once_in_its_order() {
    assert_eq!(words("training, leadership; trainer & Leaders"), ["train", "lead"]);
}

#[test]
fn no_word_is_longer_than_a_database_takes() {
    assert_eq!(words(&"x".repeat(5_000)), ["x".repeat(MAX_CHARS)]);
    assert_eq!(words(&"é".repeat(5_000)), ["e".repeat(MAX_CHARS)]);
    assert_eq!(words(&"語".repeat(5_000)), ["語".repeat(MAX_CHARS)]);
}

proptest! {
    #[test]
    fn any_text_gives_short_words_of_letters_and_digits(text in "\\PC*|[a-z' ]{0,80}|(me|ber|ke|pe|di|ng|an|i|s|er|ing|ation){1,9}") {
        let found = words(&text);
        for word in &found {
            prop_assert!(!word.is_empty() && word.chars().count() <= MAX_CHARS);
            prop_assert!(word.chars().all(char::is_alphanumeric), "{:?}", word);
        }
        prop_assert_eq!(found.iter().collect::<HashSet<_>>().len(), found.len());
    }

    #[test]
    fn the_case_of_a_text_makes_no_difference(text in "[a-zA-Z ]{0,60}") {
        prop_assert_eq!(words(&text.to_uppercase()), words(&text.to_lowercase()));
    }
}
