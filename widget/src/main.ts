// <amalgam-assistant>: attributes, properties and events of the element.

import { Api, ApiError, type GetClientSecret } from './api';
import { Conversation } from './conversation';
import { Memory } from './memory';
import { styleSheet } from './styles';
import { languageOf, textsOf, type Texts } from './texts';
import { View } from './view';

/** The address of this script; null in a module. */
const SCRIPT = document.currentScript instanceof HTMLScriptElement ? document.currentScript.src : '';

class AmalgamAssistant extends HTMLElement {
  static readonly observedAttributes = ['server', 'agent', 'language', 'mode', 'open'];

  private secret: GetClientSecret | null = null;
  private view: View | null = null;
  private conversation: Conversation | null = null;
  private memory: Memory | null = null;
  private resumed = false;

  /** Gives a token for the user; called again when one has expired. */
  get getClientSecret(): GetClientSecret | null {
    return this.secret;
  }

  set getClientSecret(value: GetClientSecret | null) {
    this.secret = value;
    this.resume();
  }

  get open(): boolean {
    return this.hasAttribute('open');
  }

  set open(value: boolean) {
    this.toggleAttribute('open', value);
  }

  connectedCallback(): void {
    if (!this.view) {
      const shadow = this.shadowRoot ?? this.attachShadow({ mode: 'open' });
      shadow.adoptedStyleSheets = [styleSheet()];
      this.view = new View(this.texts, {
        toggle: () => this.setOpen(!this.open),
        close: () => this.setOpen(false),
        restart: () => {
          this.conversation?.restart();
          this.view?.focus('input');
        },
        send: (message) => void this.conversation?.send(message),
        stop: () => this.conversation?.stop(),
        earlier: () => void this.conversation?.earlier(),
        nextPage: (address) => this.api().courses(address),
      });
      shadow.append(this.view.root);
    }
    // A page may have set the property before this script ran.
    if (Object.hasOwn(this, 'getClientSecret')) {
      const { getClientSecret } = this;
      delete (this as Partial<AmalgamAssistant>).getClientSecret;
      this.secret = getClientSecret;
    }
    this.begin();
  }

  disconnectedCallback(): void {
    this.conversation?.disconnect();
    this.conversation = null;
  }

  attributeChangedCallback(name: string, before: string | null, after: string | null): void {
    if (!this.view || before === after || !this.isConnected) return;
    if (name === 'server' || name === 'agent') {
      this.conversation?.disconnect();
      this.view.clear();
      this.begin();
    } else {
      this.show();
      this.resume();
    }
  }

  private get texts(): Texts {
    return textsOf(languageOf(this.getAttribute('language')));
  }

  private get server(): string {
    const url = new URL(this.getAttribute('server') || SCRIPT || '/', document.baseURI);
    return this.hasAttribute('server') ? url.href.replace(/\/+$/, '') : url.origin;
  }

  private get agent(): string {
    return this.getAttribute('agent') ?? '';
  }

  private currentApi: Api | null = null;

  private api(): Api {
    this.currentApi ??= new Api(this.server, () => {
      if (!this.secret) throw new ApiError(0, 'no_token', 'the property getClientSecret is not set');
      return this.secret();
    });
    return this.currentApi;
  }

  private begin(): void {
    if (!this.view) return;
    this.currentApi = null;
    this.memory = new Memory(this.server, this.agent);
    this.resumed = false;
    this.conversation = new Conversation(
      this.api(),
      this.view,
      this.memory,
      () => ({ agent: this.agent, courseId: this.getAttribute('course-id'), texts: this.texts }),
      {
        message: (detail) => this.emit('amalgam:message', detail),
        error: (detail) => this.emit('amalgam:error', detail),
      },
    );
    if (this.memory.value.open && this.getAttribute('mode') !== 'inline') this.open = true;
    this.show();
    this.resume();
  }

  private show(): void {
    const language = languageOf(this.getAttribute('language'));
    this.view?.setTexts(textsOf(language), language);
    this.view?.setMode(this.getAttribute('mode') !== 'inline', this.open);
  }

  /** Shows the thread of before, as soon as the widget is visible and has a way to get a token. */
  private resume(): void {
    const visible = this.open || this.getAttribute('mode') === 'inline';
    if (this.resumed || !visible || !this.secret || !this.conversation) return;
    this.resumed = true;
    void this.conversation.resume();
  }

  private setOpen(open: boolean): void {
    this.open = open;
    this.memory?.set({ open });
    this.view?.focus(open ? 'input' : 'bubble');
  }

  private emit(name: string, detail: unknown): void {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true }));
  }
}

if (!customElements.get('amalgam-assistant')) customElements.define('amalgam-assistant', AmalgamAssistant);
