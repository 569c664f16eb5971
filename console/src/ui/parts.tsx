// Small parts that all pages use.

import type { ComponentChildren } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { ApiError } from '../api/client';
import { ago, dateTime, shortTime } from '../format';
import { t, word } from '../i18n';
import { hasNavigated } from '../router';
import { Icon, type IconName } from './icons';

export function Page(props: { title: string; about?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Amalgam`;
  }, [props.title]);
  const main = useRef<HTMLElement>(null);
  useEffect(() => {
    // After a link was followed, the focus is at the beginning of the page, unless the page has taken it.
    const active = document.activeElement;
    if (hasNavigated() && (!active || active === document.body || active.closest('.nav, .top'))) main.current?.focus({ preventScroll: true });
  }, []);
  return (
    <main class="page" id="content" ref={main} tabIndex={-1}>
      <div class="page-head">
        <div class="grow">
          <h1>{props.title}</h1>
          {props.about && <p class="muted">{props.about}</p>}
        </div>
        {props.actions && <div class="row">{props.actions}</div>}
      </div>
      {props.children}
    </main>
  );
}

export function Card(props: { title?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; foot?: ComponentChildren; flush?: boolean }) {
  return (
    <section class="card">
      {(props.title || props.actions) && (
        <div class="card-head">
          {props.title && <h2>{props.title}</h2>}
          {props.actions}
        </div>
      )}
      {props.flush ? props.children : <div class="card-body">{props.children}</div>}
      {props.foot && <div class="card-foot">{props.foot}</div>}
    </section>
  );
}

export function IconButton(props: { icon: IconName; label: string; onClick: () => void; small?: boolean; pressed?: boolean; disabled?: boolean }) {
  return (
    <button
      type="button"
      class={`button quiet icon${props.small ? ' small' : ''}`}
      aria-label={props.label}
      title={props.label}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      <Icon name={props.icon} />
    </button>
  );
}

const TONES: Record<string, string> = {
  completed: 'good',
  approved: 'good',
  delivered: 'good',
  active: 'good',
  ready: 'good',
  failed: 'wrong',
  denied: 'wrong',
  expired: 'wrong',
  revoked: 'wrong',
  incomplete: 'wait',
  cancelled: 'wait',
  pending: 'wait',
  draining: 'wait',
  in_progress: 'live',
  queued: 'live',
};

export function Status({ value }: { value: string }) {
  return <span class={`badge ${TONES[value] ?? ''}`}>{word('status', value)}</span>;
}

export function Tag({ children, tone }: { children: ComponentChildren; tone?: 'good' | 'wrong' | 'wait' | 'live' }) {
  return <span class={`badge plain ${tone ?? ''}`}>{children}</span>;
}

/** A time in the user's zone; the title has the full date and how long ago it was. */
export function Time({ ms, relative }: { ms: number; relative?: boolean }) {
  return (
    <time dateTime={new Date(ms).toISOString()} title={`${dateTime(ms)} (${ago(ms)})`}>
      {relative ? ago(ms) : shortTime(ms)}
    </time>
  );
}

export function Notice(props: { tone?: 'wrong' | 'wait' | 'good'; icon?: IconName; children: ComponentChildren; actions?: ComponentChildren }) {
  const icon = props.icon ?? (props.tone === 'good' ? 'check' : props.tone ? 'warn' : 'info');
  return (
    <div class={`notice ${props.tone ?? ''}`} role={props.tone === 'wrong' ? 'alert' : undefined}>
      <Icon name={icon} />
      <div class="grow">{props.children}</div>
      {props.actions}
    </div>
  );
}

/** An error with the id of the request, by which it is found in the server's log. */
export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  const known = error instanceof ApiError ? error : null;
  return (
    <Notice
      tone="wrong"
      actions={
        retry && (
          <button type="button" class="button small" onClick={retry}>
            {t('action.retry')}
          </button>
        )
      }
    >
      <p class="text-block">{known?.status === 0 ? t('error.unreachable') : error.message}</p>
      {known?.requestId && (
        <p class="small muted">
          {t('error.request')} <code>{known.requestId}</code>
          {known.status ? ` · HTTP ${known.status}` : ''}
        </p>
      )}
    </Notice>
  );
}

/** Text with code between backticks. */
export function Prose({ text }: { text: string }) {
  return (
    <>
      {text.split('`').map((part, index) => (index % 2 ? <code key={index}>{part}</code> : part))}
    </>
  );
}

export function Empty(props: { title: string; children?: ComponentChildren; action?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.children && <p>{props.children}</p>}
      {props.action}
    </div>
  );
}

export function Loading() {
  return (
    <div class="stack tight card-body" aria-busy="true">
      <span class="hidden-text" role="status">
        {t('state.loading')}
      </span>
      {[72, 56, 64].map((width) => (
        <div class="skeleton" style={{ width: `${width}%` }} key={width} />
      ))}
    </div>
  );
}

export function CopyButton({ text, label, small = true }: { text: string; label?: string; small?: boolean }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), 1500);
    return () => clearTimeout(timer);
  }, [done]);
  const copy = (): void => {
    void navigator.clipboard.writeText(text).then(() => setDone(true));
  };
  const name = done ? t('action.copied') : t('action.copy');
  return label ? (
    <button type="button" class={`button${small ? ' small' : ''}`} onClick={copy}>
      <Icon name={done ? 'check' : 'copy'} />
      {done ? t('action.copied') : label}
    </button>
  ) : (
    <IconButton icon={done ? 'check' : 'copy'} label={name} onClick={copy} small={small} />
  );
}

/** An id that can be copied. */
export function Id({ value, link }: { value: string; link?: string }) {
  return (
    <span class="row tight nowrap-id">
      {link ? (
        <a class="mono" href={link}>
          {value}
        </a>
      ) : (
        <code>{value}</code>
      )}
      <CopyButton text={value} />
    </span>
  );
}

export function Code({ text, label }: { text: string; label?: string }) {
  return (
    <div class="code-block">
      <div class="copy">
        <CopyButton text={text} />
      </div>
      <pre tabIndex={0} aria-label={label ?? t('part.code')} role="group">
        {text}
      </pre>
    </div>
  );
}

export interface Tab<T extends string> {
  id: T;
  label: string;
  count?: number;
}

export function Tabs<T extends string>(props: { tabs: Tab<T>[]; selected: T; onSelect: (id: T) => void; label: string }) {
  const select = (event: KeyboardEvent): void => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const index = props.tabs.findIndex((tab) => tab.id === props.selected);
    const next = props.tabs[(index + step + props.tabs.length) % props.tabs.length];
    if (!next) return;
    props.onSelect(next.id);
    const list = (event.currentTarget as HTMLElement).querySelectorAll('button');
    list[(index + step + props.tabs.length) % props.tabs.length]?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={props.label} onKeyDown={select}>
      {props.tabs.map((tab) => (
        <button
          key={tab.id}
          type="button"
          role="tab"
          id={`tab-${tab.id}`}
          aria-selected={tab.id === props.selected}
          aria-controls="tab-panel"
          tabIndex={tab.id === props.selected ? 0 : -1}
          onClick={() => props.onSelect(tab.id)}
        >
          {tab.label}
          {tab.count !== undefined && <span class="count">{tab.count}</span>}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ tab, children }: { tab: string; children: ComponentChildren }) {
  return (
    <div role="tabpanel" id="tab-panel" aria-labelledby={`tab-${tab}`} class="stack" tabIndex={-1}>
      {children}
    </div>
  );
}

export function Field(props: { label: string; help?: ComponentChildren; error?: string; children: (id: string, described?: string) => ComponentChildren }) {
  const id = useId();
  const described = props.error || props.help ? `${id}-help` : undefined;
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id, described)}
      {described && (
        <span id={described} class={`small ${props.error ? 'bad' : 'muted'}`}>
          {props.error ?? props.help}
        </span>
      )}
    </div>
  );
}

export function TextField(props: { label: string; value: string; onInput: (value: string) => void; help?: ComponentChildren; error?: string; placeholder?: string; secret?: boolean; code?: boolean; required?: boolean; autofocus?: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (props.autofocus) input.current?.focus();
  }, [props.autofocus]);
  return (
    <Field label={props.label} help={props.help} error={props.error}>
      {(id, described) => (
        <input
          ref={input}
          id={id}
          class={`input${props.code ? ' code' : ''}`}
          {...(props.secret ? { type: 'password' as const } : { type: 'text' as const })}
          value={props.value}
          placeholder={props.placeholder}
          required={props.required}
          aria-describedby={described}
          aria-invalid={props.error ? 'true' : undefined}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => props.onInput(event.currentTarget.value)}
        />
      )}
    </Field>
  );
}

export function TextArea(props: { label: string; value: string; onInput: (value: string) => void; help?: ComponentChildren; error?: string; rows?: number; code?: boolean; placeholder?: string; onKeyDown?: (event: KeyboardEvent) => void }) {
  return (
    <Field label={props.label} help={props.help} error={props.error}>
      {(id, described) => (
        <textarea
          id={id}
          class={`input${props.code ? ' code' : ''}`}
          rows={props.rows ?? 4}
          value={props.value}
          placeholder={props.placeholder}
          aria-describedby={described}
          aria-invalid={props.error ? 'true' : undefined}
          spellcheck={false}
          onInput={(event) => props.onInput(event.currentTarget.value)}
          onKeyDown={props.onKeyDown}
        />
      )}
    </Field>
  );
}

export function Select<T extends string>(props: { label: string; value: T; options: readonly { value: T; label: string }[]; onChange: (value: T) => void; help?: ComponentChildren }) {
  return (
    <Field label={props.label} help={props.help}>
      {(id, described) => (
        <select id={id} class="input" value={props.value} aria-describedby={described} onChange={(event) => props.onChange(event.currentTarget.value as T)}>
          {props.options.map((option) => (
            <option value={option.value} key={option.value}>
              {option.label}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Check(props: { label: ComponentChildren; checked: boolean; onChange: (checked: boolean) => void; disabled?: boolean }) {
  return (
    <label class="check">
      <input type="checkbox" checked={props.checked} disabled={props.disabled} onChange={(event) => props.onChange(event.currentTarget.checked)} />
      <span>{props.label}</span>
    </label>
  );
}
