//! The stemmer for Indonesian.
//!
//! Prefixes change the first letter of the root (`pimpin`, `memimpin`), and many English words look as if they had an
//! affix (`member`, `pending`). So affixes are removed only if a known root is left; the known roots are common in
//! courses. A few affixes that no English word begins with are removed from unknown roots too.

/// Longer words are not Indonesian; the search for their roots is skipped.
const MAX_CHARS: usize = 32;

/// Suffixes that may follow the word's own affixes: `-nya` and the like.
const CLITICS: [&str; 7] = ["nya", "lah", "kah", "pun", "tah", "ku", "mu"];
const SUFFIXES: [&str; 5] = ["kan", "an", "i", "wan", "wati"];

/// A prefix, and the letters of the root that it may have replaced.
#[rustfmt::skip] // one prefix a line
const PREFIXES: [(&str, &[&str]); 21] = [
    ("menge", &[""]), ("meng", &["", "k"]), ("meny", &["s"]), ("mem", &["", "p"]), ("men", &["", "t"]), ("me", &[""]),
    ("penge", &[""]), ("peng", &["", "k"]), ("peny", &["s"]), ("pem", &["", "p"]), ("pen", &["", "t"]), ("pe", &[""]),
    ("per", &[""]), ("pel", &[""]),
    ("ber", &[""]), ("bel", &[""]), ("be", &[""]),
    ("ter", &[""]), ("di", &[""]), ("ke", &[""]), ("se", &[""]),
];

/// The maximum number of prefixes: `mem-per-`, `ke-pem-`, `di-ber-`.
const MAX_PREFIXES: usize = 2;

/// The root of a word, if it is a known one.
pub(super) fn root(word: &str) -> Option<&'static str> {
    if word.len() > MAX_CHARS {
        return None;
    }
    // The candidate with the fewest removed letters comes first: `bulan` is a root, not `bul` with an ending.
    let bare = CLITICS.iter().filter_map(|clitic| word.strip_suffix(clitic));
    let bases: Vec<&str> = std::iter::once(word).chain(bare).collect();
    bases.iter().find_map(|base| known(base)).or_else(|| bases.iter().find_map(|base| derived(base)))
}

fn derived(base: &str) -> Option<&'static str> {
    unsuffixed(base).find_map(known).or_else(|| {
        let ends = std::iter::once(base).chain(unsuffixed(base));
        (1..=MAX_PREFIXES).find_map(|prefixes| ends.clone().find_map(|end| unprefixed(end, prefixes)))
    })
}

fn unsuffixed(word: &str) -> impl Iterator<Item = &str> + Clone {
    SUFFIXES.iter().filter_map(move |suffix| word.strip_suffix(suffix))
}

/// The root after exactly this many prefixes.
fn unprefixed(word: &str, prefixes: usize) -> Option<&'static str> {
    if prefixes == 0 {
        return known(word);
    }
    PREFIXES.iter().find_map(|(prefix, replaced)| {
        let rest = word.strip_prefix(prefix)?;
        // `men-` and `mem-` before a vowel have replaced a letter: otherwise they would be `meng-`.
        let always = prefix.ends_with(['n', 'm']) && rest.starts_with(|c| "aeiou".contains(c));
        replaced.iter().find_map(|letter| match letter.is_empty() {
            true if always => None,
            true => unprefixed(rest, prefixes - 1),
            false => unprefixed(&format!("{letter}{rest}"), prefixes - 1),
        })
    })
}

fn known(word: &str) -> Option<&'static str> {
    ROOTS.binary_search(&word).ok().and_then(|at| ROOTS.get(at).copied())
}

/// A word with an unknown root, without affixes that can only be Indonesian: `mengupload` and `diuploadkan` are
/// `upload`.
pub(super) fn loosened(word: &str) -> &str {
    let rest = strip_end(word, &["nya", "lah", "kah"]);
    // No English word begins like this, and the next letter shows that the root is complete.
    let sound = [("meng", "aeioughk"), ("peng", "aeiogh"), ("mem", "b"), ("pem", "b"), ("men", "jc"), ("pen", "j")];
    let active = sound.iter().find_map(|(prefix, letters)| {
        let root = rest.strip_prefix(prefix)?;
        (root.len() >= 4 && root.starts_with(|c| letters.contains(c)) && !is_english(rest)).then_some(root)
    });
    match (active, rest.strip_prefix("di")) {
        (Some(root), _) => strip_end(root, &["kan", "an"]),
        (None, Some(root)) if root.len() >= 7 && root.ends_with("kan") => strip_end(root, &["kan"]),
        _ => rest,
    }
}

fn is_english(word: &str) -> bool {
    ["member", "membran"].iter().any(|start| word.starts_with(start))
}

fn strip_end<'a>(word: &'a str, endings: &[&str]) -> &'a str {
    endings.iter().find_map(|ending| word.strip_suffix(ending).filter(|rest| rest.len() >= 4)).unwrap_or(word)
}

/// Sorted, for binary search.
#[rustfmt::skip]
const ROOTS: &[&str] = &[
    "abai", "abdi", "acara", "acu", "adab", "adaptasi", "adil", "administrasi", "agama", "ahli", "ajak", "ajar",
    "aju", "akademi", "akar", "akhir", "akibat", "akrab", "akreditasi", "aksara", "akses", "aktif", "akun",
    "akurat", "alat", "alih", "alir", "alur", "aman", "amanah", "amat", "ambil", "ampu", "analisis", "ancam",
    "andal", "anggap", "anggar", "anggota", "angka", "angkat", "angkut", "anjur", "antar", "antisipasi", "anut",
    "aplikasi", "apresiasi", "arah", "arsip", "arti", "arus", "asah", "asal", "asas", "asuh", "asumsi", "asuransi",
    "atas", "atur", "awal", "awas", "baca", "badan", "bagi", "bahan", "bahas", "bahasa", "bahaya", "baik", "baja",
    "bakat", "baku", "balas", "balik", "bandar", "banding", "bangsa", "bangun", "bantu", "barang", "baru", "basis",
    "batas", "bawa", "bawah", "bayar", "beda", "bekal", "bela", "beli", "benah", "benar", "bendung", "bentuk",
    "berani", "berat", "beres", "berita", "berkas", "bersih", "besar", "biasa", "biaya", "bicara", "bidang",
    "bijak", "bilang", "bimbing", "bina", "bincang", "bisnis", "bocor", "boga", "bongkar", "buat", "budaya", "buka",
    "bukti", "buku", "bulan", "bumi", "bunga", "buru", "buruh", "busana", "butuh", "cabang", "cadang", "cahaya",
    "cakap", "cakup", "campur", "canggih", "capai", "cara", "catat", "cegah", "cek", "celaka", "cepat", "cerdas",
    "cerita", "cermat", "cetak", "cipta", "citra", "coba", "contoh", "cukup", "curah", "curang", "curi", "daftar",
    "dagang", "daki", "damai", "dampak", "damping", "dana", "dapur", "darurat", "dasar", "data", "datang", "daur",
    "daya", "dedikasi", "dekat", "delegasi", "dengar", "depan", "derajat", "desa", "desain", "didik",
    "digitalisasi", "diri", "disiplin", "diskusi", "dokter", "dokumen", "dokumentasi", "dorong", "dosen", "duga",
    "dukung", "dunia", "edar", "edukasi", "ekonomi", "ekspor", "emosi", "empati", "enkripsi", "erat", "estimasi",
    "etika", "evaluasi", "fasih", "fasilitasi", "fokus", "formulasi", "fungsi", "gabung", "gaji", "gali", "gambar",
    "ganda", "ganggu", "ganti", "gaul", "gaya", "gejala", "gelar", "gembira", "gerak", "giat", "giring", "gizi",
    "golong", "gudang", "guna", "guru", "hadap", "hadir", "hak", "halaman", "halang", "hambat", "hantar", "harap",
    "harga", "hari", "harmoni", "hasil", "hasut", "hati", "hayat", "hemat", "henti", "hidang", "hidup", "hijau",
    "hilang", "himpun", "hindar", "hitung", "hormat", "hubung", "hukum", "huni", "ibu", "identifikasi", "ikat",
    "iklan", "iklim", "ikut", "ilmu", "imbang", "implementasi", "impor", "indah", "industri", "informasi", "ingat",
    "inisiatif", "inovasi", "inspirasi", "integritas", "interaksi", "investasi", "isi", "istirahat", "isu", "izin",
    "jabat", "jadwal", "jaga", "jajar", "jalan", "jalin", "jalur", "jamin", "jangkau", "janji", "jarak", "jaring",
    "jasa", "jati", "jawab", "jelas", "jenis", "jiwa", "jual", "juang", "juara", "judul", "jujur", "jumlah",
    "jurnal", "juru", "kabar", "kader", "kaidah", "kait", "kaji", "kalah", "kalimat", "kalkulasi", "kampanye",
    "kandidat", "kantor", "kapal", "karier", "karya", "karyawan", "kas", "kasus", "kata", "kawan", "kaya", "kelas",
    "keliling", "kelola", "kelompok", "keluarga", "keluh", "kemas", "kembali", "kembang", "kemudi", "kenal",
    "kendala", "kendali", "kendara", "kerja", "kertas", "kesan", "khusus", "kinerja", "kirim", "klasifikasi",
    "klinik", "kode", "kolaborasi", "komitmen", "kompeten", "kompetensi", "kompetitif", "komputer", "komunikasi",
    "komunitas", "konflik", "konseling", "konsep", "konsisten", "konsultasi", "konsumen", "konten", "kontrak",
    "kontribusi", "kontrol", "koordinasi", "kota", "kreatif", "kredit", "krisis", "kritis", "kualifikasi", "kuasa",
    "kuat", "kuliah", "kumpul", "kunci", "kunjung", "kurang", "kurikulum", "laba", "lacak", "lahir", "laju", "laku",
    "lambat", "lampau", "lampir", "lancar", "landas", "langgan", "langgar", "langkah", "langsung", "lanjut",
    "lapor", "larang", "lari", "latih", "lawan", "layak", "layan", "layar", "lebih", "lelang", "lembaga", "lembar",
    "lengkap", "lepas", "lestari", "letak", "lewat", "libat", "lihat", "limbah", "lindung", "lingkung", "lingkup",
    "lipat", "lisan", "listrik", "logika", "logistik", "lokasi", "lomba", "luang", "luar", "luas", "lulus", "lunas",
    "mahir", "main", "maju", "makan", "makna", "maksud", "malam", "mampu", "manajemen", "manajer", "mandiri",
    "manfaat", "manusia", "mapan", "masak", "masalah", "masuk", "masyarakat", "mata", "matang", "materi", "mediasi",
    "meditasi", "mekar", "menang", "menteri", "mesin", "milik", "mimpi", "minat", "minggu", "minum", "mitigasi",
    "mitra", "modal", "model", "modernisasi", "motivasi", "muat", "muda", "mudah", "mula", "mulai", "mutu", "naik",
    "nalar", "nama", "nasabah", "nasihat", "navigasi", "negara", "negeri", "negosiasi", "niaga", "nikah", "nilai",
    "norma", "nyaman", "nyata", "obat", "olah", "olahraga", "operasi", "optimalisasi", "orang", "organisasi",
    "orientasi", "otomasi", "pabrik", "pacu", "padu", "paham", "pahit", "pahlawan", "pajak", "pakai", "paket",
    "paksa", "panas", "pandai", "pandang", "pandu", "panen", "pangan", "panggil", "pangkas", "panjang", "panjat",
    "pantau", "pantik", "papar", "partisipasi", "pasang", "pasar", "pasien", "pasok", "pasti", "patok", "patuh",
    "payung", "pecah", "peduli", "pegang", "pegawai", "peka", "pelihara", "pelopor", "peluang", "pemuda", "pendek",
    "pengalaman", "pengaruh", "penjara", "penting", "penuh", "peran", "perangkat", "percaya", "perempuan", "pergi",
    "perhati", "periksa", "perilaku", "peringkat", "perintah", "perkara", "perlu", "persepsi", "pesan", "pesat",
    "pesawat", "peserta", "peta", "petik", "pidato", "pihak", "pikat", "pikir", "pilah", "pilih", "pimpin",
    "pindah", "pinjam", "pintar", "pisah", "piutang", "pohon", "pokok", "pola", "politik", "populer", "posisi",
    "potensi", "potong", "praktik", "prasarana", "presentasi", "pribadi", "prinsip", "prioritas", "produk",
    "produksi", "produktif", "profesi", "profesional", "program", "promosi", "proses", "proyek", "psikologi",
    "puas", "publik", "publikasi", "pulih", "puncak", "punya", "pupuk", "purna", "pusat", "putus", "ragam",
    "rahasia", "rakit", "rakyat", "ramah", "rambu", "ranah", "rancang", "rangka", "rangkai", "rangkul", "rangkum",
    "rapat", "rapi", "rasa", "rata", "rawat", "raya", "realisasi", "regulasi", "rekam", "rekan", "rekonsiliasi",
    "rekrut", "rekrutmen", "relasi", "rencana", "rendah", "resiko", "resmi", "respons", "ringkas", "riset",
    "risiko", "rombak", "rugi", "rujuk", "rumah", "rumus", "runding", "rusak", "sadar", "saham", "saing", "saji",
    "sakit", "salah", "salur", "sambung", "sampah", "sampai", "sandi", "sanding", "santun", "saran", "sarana",
    "saring", "sasar", "satu", "sayang", "sebar", "sedekah", "sedia", "segar", "segmen", "sehat", "sejahtera",
    "sejarah", "sekolah", "sekretaris", "sela", "selamat", "seleksi", "selenggara", "selesai", "selidik", "seluruh",
    "semangat", "sembuh", "senang", "sengketa", "seni", "sentuh", "sepakat", "seragam", "serah", "serang", "serap",
    "sertifikasi", "sertifikat", "sesuai", "setara", "siaga", "siap", "siar", "sidik", "sifat", "sikap", "simpan",
    "simpul", "simulasi", "singkat", "sistem", "siswa", "situs", "soal", "sortir", "sosial", "standardisasi",
    "statistik", "strategi", "struktur", "studi", "suara", "sukses", "sulit", "sumber", "sunting", "surat",
    "survei", "surya", "susah", "susun", "syarat", "tafsir", "tahan", "tahap", "tahu", "tahun", "tamat", "tambah",
    "tambang", "tampil", "tanam", "tanda", "tangan", "tanggap", "tangguh", "tanggung", "tanggungjawab", "tangkap",
    "tani", "tantang", "tanya", "target", "tarik", "tata", "tatap", "tawar", "tebak", "tekan", "teknik", "teknis",
    "teknologi", "telaah", "teladan", "teliti", "teman", "tembus", "tempat", "tempuh", "tempur", "temu", "tenaga",
    "tenang", "tengah", "tentu", "tepat", "terampil", "terang", "terap", "terbit", "terima", "terjemah", "ternak",
    "tetap", "timbang", "tindak", "tinggi", "tingkat", "tinjau", "tipu", "titip", "toko", "tolak", "tonton",
    "topik", "transaksi", "transformasi", "transportasi", "tuang", "tugas", "tuju", "tular", "tulis", "tumbuh",
    "tumpu", "tunda", "tunjuk", "tuntas", "tuntun", "tuntut", "turun", "tutup", "tutur", "uang", "ubah", "ucap",
    "uji", "ukur", "ulang", "ulas", "undang", "undi", "unduh", "undur", "unggah", "unggul", "ungkap", "universitas",
    "unjuk", "untung", "upah", "upaya", "urai", "urus", "urut", "usaha", "usul", "utama", "utang", "utuh", "vaksin",
    "verifikasi", "visualisasi", "wajar", "wajib", "waktu", "wali", "wanita", "warga", "waris", "warna", "warta",
    "waspada", "wawancara", "wawasan", "wenang", "wewenang", "wilayah", "wirausaha", "wisata", "wujud", "yakin",
    "zaman",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_are_in_order_and_each_is_there_once() {
        assert!(ROOTS.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn what_a_prefix_has_swallowed_comes_back() {
        for (word, expected) in [
            ("memimpin", "pimpin"),
            ("kepemimpinannya", "pimpin"),
            ("menulis", "tulis"),
            ("penyusunan", "susun"),
            ("pengembangan", "kembang"),
            ("mengecek", "cek"),
            ("pembelajaran", "ajar"),
            ("mempertanggungjawabkan", "tanggungjawab"),
            ("memberdayakan", "daya"),
            ("bulannya", "bulan"),
        ] {
            assert_eq!(root(word), Some(expected), "{word}");
        }
    }

    #[test]
    fn unknown_roots_lose_what_only_indonesian_has() {
        for (word, expected) in [
            ("mengupload", "upload"),
            ("mengunduhnya", "unduh"),
            ("didownloadkan", "download"),
            ("membership", "membership"),
            ("penguin", "penguin"),
            ("dialog", "dialog"),
        ] {
            assert_eq!(loosened(word), expected, "{word}");
        }
    }
}
