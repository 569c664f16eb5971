// The texts of the widget in English and Indonesian.

export interface Texts {
  title: string;
  open: string;
  close: string;
  newConversation: string;
  conversation: string;
  message: string;
  placeholder: string;
  send: string;
  stop: string;
  retry: string;
  earlier: string;
  you: string;
  assistant: string;
  answering: string;
  usingTool: string;
  stopped: string;
  greeting: string;
  toolHint: string;
  courses: (count: number) => string;
  more: string;
  loading: string;
  course: string;
  progress: (percent: number) => string;
  inPlaylist: string;
  notEligible: string;
  finish: (percent: number) => string;
  inSequence: string;
  newTab: string;
  unavailable: string;
  offline: string;
  budget: string;
  signIn: string;
  notAllowed: string;
}

const en: Texts = {
  title: 'Assistant',
  open: 'Open the assistant',
  close: 'Close the assistant',
  newConversation: 'New conversation',
  conversation: 'Conversation',
  message: 'Your message',
  placeholder: 'Ask something…',
  send: 'Send',
  stop: 'Stop',
  retry: 'Try again',
  earlier: 'Show earlier messages',
  you: 'You',
  assistant: 'Assistant',
  answering: 'The assistant is answering…',
  usingTool: 'Looking it up…',
  stopped: 'Stopped',
  greeting: 'Hello! How can I help?',
  toolHint: 'Some information could not be loaded.',
  courses: (count) => (count === 1 ? '1 course' : `${count} courses`),
  more: 'Show more courses',
  loading: 'Loading…',
  course: 'Course',
  progress: (percent) => `${percent}% done`,
  inPlaylist: 'In your playlist',
  notEligible: 'Not available to you',
  finish: (percent) => `Complete ${percent}% to finish`,
  inSequence: 'Contents in sequence',
  newTab: '(opens in a new tab)',
  unavailable: 'The assistant is not available right now.',
  offline: 'The assistant cannot be reached.',
  budget: 'You have used all your messages for today.',
  signIn: 'Please sign in again.',
  notAllowed: 'The assistant is not available on this page.',
};

const id: Texts = {
  title: 'Asisten',
  open: 'Buka asisten',
  close: 'Tutup asisten',
  newConversation: 'Percakapan baru',
  conversation: 'Percakapan',
  message: 'Pesan Anda',
  placeholder: 'Tanyakan sesuatu…',
  send: 'Kirim',
  stop: 'Hentikan',
  retry: 'Coba lagi',
  earlier: 'Tampilkan pesan sebelumnya',
  you: 'Anda',
  assistant: 'Asisten',
  answering: 'Asisten sedang menjawab…',
  usingTool: 'Sedang mencari…',
  stopped: 'Dihentikan',
  greeting: 'Halo! Ada yang bisa saya bantu?',
  toolHint: 'Sebagian informasi tidak dapat dimuat.',
  courses: (count) => `${count} kursus`,
  more: 'Tampilkan kursus lainnya',
  loading: 'Memuat…',
  course: 'Kursus',
  progress: (percent) => `${percent}% selesai`,
  inPlaylist: 'Ada di daftar Anda',
  notEligible: 'Tidak tersedia untuk Anda',
  finish: (percent) => `Selesaikan ${percent}% untuk menuntaskan`,
  inSequence: 'Materi berurutan',
  newTab: '(terbuka di tab baru)',
  unavailable: 'Asisten sedang tidak tersedia.',
  offline: 'Asisten tidak dapat dihubungi.',
  budget: 'Pesan Anda untuk hari ini sudah habis.',
  signIn: 'Silakan masuk kembali.',
  notAllowed: 'Asisten tidak tersedia di halaman ini.',
};

/** The language of the widget: the attribute, else that of the page, else that of the browser. */
export function languageOf(attribute: string | null): 'en' | 'id' {
  const wanted = attribute || document.documentElement.lang || navigator.language;
  return /^(id|in|ms)\b/i.test(wanted) ? 'id' : 'en';
}

export const textsOf = (language: 'en' | 'id'): Texts => (language === 'id' ? id : en);
