// The elements of the widget and how they change. Knows nothing of the server.

import { element, icon } from './dom';
import { markdown } from './markdown';
import { renderResults, type NextPage, type ToolResult } from './results';
import type { Texts } from './texts';

export interface Handlers {
  toggle: () => void;
  close: () => void;
  restart: () => void;
  send: (message: string) => void;
  stop: () => void;
  earlier: () => void;
  nextPage: NextPage;
}

/** An answer on the screen. */
export interface AnswerView {
  text: (text: string) => void;
  status: (text: string) => void;
  finish: (text: string, results: ToolResult[], note?: string) => void;
  remove: () => void;
}

export class View {
  readonly root = element('div', { class: 'root' });
  private readonly bubble = element('button', { type: 'button', class: 'bubble', 'aria-expanded': 'false', 'aria-controls': 'window' });
  private readonly window = element('section', { class: 'window', id: 'window' });
  private readonly title = element('h2', { id: 'title' });
  private readonly restart = element('button', { type: 'button', class: 'tool' }, icon('M12 20h9', 'M16.5 3.5a2.1 2.1 0 0 1 3 3L7 19l-4 1 1-4Z'));
  private readonly closer = element('button', { type: 'button', class: 'tool' }, icon('M18 6 6 18', 'm6 6 12 12'));
  private readonly log = element('div', { class: 'log', role: 'log', tabindex: '0', 'aria-live': 'off' });
  private readonly announcer = element('p', { class: 'hidden', role: 'status' });
  private readonly label = element('label', { for: 'input', class: 'hidden' });
  private readonly input = element('textarea', { id: 'input', rows: '1', enterkeyhint: 'send' });
  private readonly action = element('button', { type: 'submit', class: 'send' });
  private readonly greeting = element('div', { class: 'message assistant' });
  private readonly older = element('button', { type: 'button', class: 'quiet', hidden: '' });
  private busy = false;
  /** Whether the end of the conversation is on the screen: it stays there while an answer grows. */
  private atEnd = true;

  constructor(
    private texts: Texts,
    private readonly handlers: Handlers,
  ) {
    const form = element('form', { novalidate: '' }, this.label, this.input, this.action);
    this.window.append(element('header', {}, this.title, this.restart, this.closer), this.log, this.announcer, form);
    this.log.append(this.older, this.greeting);
    this.root.append(this.window, this.bubble);
    this.log.addEventListener('scroll', () => {
      this.atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 48;
    });
    this.bubble.addEventListener('click', handlers.toggle);
    this.closer.addEventListener('click', handlers.close);
    this.restart.addEventListener('click', handlers.restart);
    this.older.addEventListener('click', handlers.earlier);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      if (this.busy) handlers.stop();
      else this.submit();
    });
    this.input.addEventListener('keydown', (event) => {
      // An input method uses the same key to choose a character.
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      if (!this.busy) this.submit();
    });
    this.window.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && !event.isComposing && this.root.classList.contains('floating')) {
        event.stopPropagation();
        handlers.close();
      }
    });
    this.setTexts(texts, 'en');
  }

  setTexts(texts: Texts, language: string): void {
    this.texts = texts;
    this.root.lang = language;
    this.title.textContent = texts.title;
    for (const [button, text] of [[this.restart, texts.newConversation], [this.closer, texts.close]] as const) {
      button.setAttribute('aria-label', text);
      button.title = text;
    }
    this.log.setAttribute('aria-label', texts.conversation);
    this.label.textContent = texts.message;
    this.input.placeholder = texts.placeholder;
    this.greeting.replaceChildren(element('p', {}, texts.greeting));
    this.older.textContent = texts.earlier;
    this.setBusy(this.busy);
    this.nameBubble();
  }

  setMode(floating: boolean, open: boolean): void {
    this.root.classList.toggle('floating', floating);
    this.root.classList.toggle('inline', !floating);
    this.bubble.hidden = this.closer.hidden = !floating;
    this.window.hidden = floating && !open;
    this.window.setAttribute('role', floating ? 'dialog' : 'region');
    this.window.setAttribute('aria-labelledby', 'title');
    this.bubble.setAttribute('aria-expanded', String(open));
    this.bubble.replaceChildren(open ? icon('m6 9 6 6 6-6') : icon('M21 12a8 8 0 0 1-11.5 7.2L4 21l1.6-4.7A8 8 0 1 1 21 12Z'));
    this.nameBubble();
    if (!this.window.hidden) this.scroll();
  }

  private nameBubble(): void {
    this.bubble.setAttribute('aria-label', this.bubble.getAttribute('aria-expanded') === 'true' ? this.texts.close : this.texts.open);
  }

  /** Puts the keyboard where the user goes on. */
  focus(place: 'input' | 'bubble'): void {
    (place === 'input' ? this.input : this.bubble).focus();
  }

  setBusy(busy: boolean): void {
    this.busy = busy;
    const text = busy ? this.texts.stop : this.texts.send;
    this.action.setAttribute('aria-label', text);
    this.action.title = text;
    this.action.replaceChildren(busy ? icon('M7 7h10v10H7Z') : icon('M12 19V5', 'm5 12 7-7 7 7'));
    this.log.setAttribute('aria-busy', String(busy));
  }

  setEarlier(shown: boolean): void {
    this.older.hidden = !shown;
  }

  announce(text: string): void {
    this.announcer.textContent = text;
  }

  clear(): void {
    this.log.replaceChildren(this.older, this.greeting);
    this.older.hidden = true;
    this.greeting.hidden = false;
  }

  /** Shows the greeting if there is no message. */
  greet(): void {
    this.greeting.hidden = this.log.querySelectorAll('.message').length > 1;
  }

  /** A message of the user; before all others for earlier ones. */
  user(message: string, place: 'end' | 'start' = 'end'): HTMLElement {
    return this.add(element('div', { class: 'message user', dir: 'auto' }, element('span', { class: 'hidden' }, `${this.texts.you}: `), message), place);
  }

  answer(place: 'end' | 'start' = 'end'): AnswerView {
    const text = element('div', { class: 'text', dir: 'auto' });
    const status = element('p', { class: 'status' });
    const message = element('div', { class: 'message assistant' }, element('span', { class: 'hidden' }, `${this.texts.assistant}: `), text, status);
    this.add(message, place);
    let shown = '';
    let due = 0;
    const show = (): void => {
      due = 0;
      text.replaceChildren(markdown(shown, this.texts.newTab));
      this.follow(message);
    };
    return {
      text: (more) => {
        shown = more;
        // At most once a frame, however quickly the pieces arrive.
        due ||= requestAnimationFrame(show);
      },
      status: (words) => {
        status.textContent = words;
        this.follow(message);
      },
      finish: (final, results, note = '') => {
        cancelAnimationFrame(due);
        text.replaceChildren(markdown(final, this.texts.newTab));
        status.textContent = note;
        status.classList.add('still');
        message.append(...renderResults(results, this.texts, this.handlers.nextPage));
        if (place === 'end') this.follow(message);
      },
      remove: () => {
        cancelAnimationFrame(due);
        message.remove();
      },
    };
  }

  /** A failure, with a button if trying again may help. */
  problem(text: string, retry: (() => void) | null): void {
    const made = element('div', { class: 'message problem' }, element('p', {}, text));
    if (retry) {
      const button = element('button', { type: 'button', class: 'quiet' }, this.texts.retry);
      button.addEventListener('click', () => {
        made.remove();
        retry();
        this.focus('input');
      });
      made.append(button);
    }
    this.add(made, 'end');
    this.announce(text);
  }

  /** Removes failures that are out of date. */
  forgetProblems(): void {
    this.log.querySelectorAll('.problem').forEach((problem) => problem.remove());
  }

  private submit(): void {
    const message = this.input.value.trim();
    if (!message) return;
    this.input.value = '';
    this.handlers.send(message);
  }

  private add<T extends HTMLElement>(made: T, place: 'end' | 'start'): T {
    this.greeting.hidden = true;
    if (place === 'end') this.log.append(made);
    else this.greeting.after(made);
    if (place === 'end') this.scroll();
    return made;
  }

  /** Keeps the end of a growing message on the screen, and its beginning once it is taller than the screen. */
  private follow(message: HTMLElement): void {
    if (!this.atEnd) return;
    const beginning = message.offsetTop - 8;
    const end = this.log.scrollHeight - this.log.clientHeight;
    this.log.scrollTop = Math.min(beginning, end);
  }

  private scroll(): void {
    this.log.scrollTop = this.log.scrollHeight;
    this.atEnd = true;
  }
}
