//! Stop words: words without meaning for a search, and words that every question about courses has.

/// Sorted, for binary search.
#[rustfmt::skip]
const STOP_WORDS: &[&str] = &[
    "a", "about", "ada", "adalah", "agar", "akan", "aku", "all", "also", "am", "an", "and", "anda", "antara", "any",
    "apa", "apakah", "are", "as", "at", "atau", "ayo", "bagaimana", "bagi", "bahwa", "banyak", "be", "beberapa",
    "been", "belum", "beri", "berikan", "berikut", "bisa", "bisakah", "boleh", "bolehkah", "buat", "but", "by",
    "can", "cari", "carikan", "cocok", "could", "course", "courses", "d", "dalam", "dan", "dapat", "dari",
    "daripada", "deh", "dengan", "di", "dia", "did", "do", "does", "dong", "dont", "find", "for", "from", "get",
    "gimana", "give", "had", "hanya", "harus", "has", "have", "he", "her", "hingga", "his", "how", "i", "id", "if",
    "ill", "im", "in", "ingin", "ini", "into", "is", "it", "its", "itu", "ive", "jadi", "jika", "juga", "just",
    "kah", "kalau", "kami", "kamu", "karena", "kasih", "ke", "kepada", "kita", "kursus", "lagi", "lah", "lalu",
    "like", "ll", "looking", "m", "mana", "masih", "mau", "may", "me", "melalui", "mencari", "mengenai", "menjadi",
    "merekomendasikan", "minta", "more", "mungkin", "my", "nih", "no", "not", "of", "oleh", "on", "one", "or",
    "our", "pada", "paling", "para", "please", "pun", "re", "recommend", "recommendation", "recommendations",
    "recommended", "rekomendasi", "rekomendasikan", "rekomendasinya", "s", "saat", "saja", "saling", "sama",
    "sambil", "sampai", "sangat", "saya", "sebagai", "sebuah", "secara", "semua", "seperti", "serta", "setiap",
    "she", "should", "show", "sih", "so", "some", "suatu", "such", "sudah", "suggest", "supaya", "t", "tanpa",
    "tapi", "telah", "tentang", "terhadap", "tersebut", "than", "that", "the", "their", "them", "then", "there",
    "these", "they", "this", "those", "tidak", "to", "tolong", "tunjukkan", "untuk", "us", "ve", "very", "was",
    "we", "were", "what", "when", "where", "which", "who", "will", "with", "would", "ya", "yaitu", "yang", "you",
    "your",
];

/// Whether a lower-case word is a stop word.
pub(super) fn is_empty(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_words_are_in_order_and_each_is_there_once() {
        assert!(STOP_WORDS.is_sorted_by(|one, next| one < next));
    }
}
