// The frame around every page: navigation, search, the menu of the user.

import { effect, signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { language, setLanguage, t } from './i18n';
import { find, GROUPS, isAllowed, PAGES } from './pages';
import { openPalette } from './palette';
import { href, location } from './router';
import { session, signOut, version } from './session';
import { setTheme, theme, type Theme } from './theme';
import { Icon, Logo } from './ui/icons';
import { Toasts, toast } from './ui/dialog';
import { IconButton } from './ui/parts';

const navigationOpen = signal(false);

effect(() => {
  void location.value;
  navigationOpen.value = false;
});

export function Shell({ children }: { children: ComponentChildren }) {
  const isMac = navigator.platform.startsWith('Mac');
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={toContent}>
        {t('nav.skip')}
      </a>
      <Navigation />
      <button type="button" class={`sheet${navigationOpen.value ? ' open' : ''}`} aria-label={t('action.close')} onClick={() => (navigationOpen.value = false)} />
      <div class="main">
        <header class="top">
          <div class="menu-button">
            <IconButton icon="menu" label={t('nav.open')} onClick={() => (navigationOpen.value = true)} />
          </div>
          <button type="button" class="search-button" onClick={openPalette}>
            <Icon name="search" />
            {t('palette.hint')}
            <kbd>{isMac ? '⌘K' : 'Ctrl K'}</kbd>
          </button>
          <span class="grow" />
          <UserMenu />
        </header>
        {children}
      </div>
      <Toasts />
    </div>
  );
}

/** The link is no navigation: it moves the focus past the menus. */
function toContent(event: Event): void {
  event.preventDefault();
  document.getElementById('content')?.focus();
}

function Navigation() {
  const path = find(location.value.path)?.page.path.split('/')[1];
  // Pages without an entry belong to the one that leads to them.
  const current = { compare: 'turns', modes: 'profiles', tenants: 'keys' }[path ?? ''] ?? path;
  return (
    <nav class={`side nav${navigationOpen.value ? ' open' : ''}`} aria-label={t('nav.label')}>
      <a class="brand" href={href('/')}>
        <Logo />
        Amalgam
      </a>
      {GROUPS.map((group) => {
        const pages = PAGES.filter((page) => page.entry?.group === group && isAllowed(page));
        if (!pages.length) return null;
        return (
          <div key={group}>
            <div class="nav-group" id={`nav-${group}`}>
              {t(`nav.group.${group}`)}
            </div>
            <ul aria-labelledby={`nav-${group}`}>
              {pages.map((page) => (
                <li key={page.path}>
                  <a href={href(page.path)} aria-current={page.path.split('/')[1] === current ? 'page' : undefined}>
                    {page.entry && <Icon name={page.entry.icon} />}
                    {page.entry && t(page.entry.label)}
                  </a>
                </li>
              ))}
            </ul>
          </div>
        );
      })}
      <div class="side-foot small muted">
        {t('nav.version', { version: version.value })} · <a href="/docs/">{t('nav.docs')}</a>
      </div>
    </nav>
  );
}

function UserMenu() {
  const [open, setOpen] = useState(false);
  const area = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const leave = (event: Event): void => {
      if (!(event.target instanceof Node && area.current?.contains(event.target))) setOpen(false);
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key === 'Escape') setOpen(false);
    };
    document.addEventListener('pointerdown', leave);
    document.addEventListener('keydown', escape);
    return () => {
      document.removeEventListener('pointerdown', leave);
      document.removeEventListener('keydown', escape);
    };
  }, [open]);
  const who = session.value;
  if (!who) return null;
  const themes: [Theme, string][] = [
    ['system', t('theme.system')],
    ['light', t('theme.light')],
    ['dark', t('theme.dark')],
  ];
  return (
    <div class="menu" ref={area}>
      <button type="button" class="button quiet" aria-expanded={open} aria-haspopup="true" onClick={() => setOpen(!open)}>
        <Icon name="person" />
        {who.tenant_name}
      </button>
      {open && (
        <div class="menu-list">
          <div class="about">
            <div>
              {t('user.tenant')} {who.tenant_id}: {who.tenant_name}
            </div>
            <div class="small muted">{who.user}</div>
            <div class="small muted">
              {t('user.rights')} {who.rights.join(', ')}
            </div>
          </div>
          <hr />
          <div class="about stack tight">
            <div class="row tight" role="group" aria-label={t('theme.label')}>
              {themes.map(([value, label]) => (
                <button key={value} type="button" class="button small chip" aria-pressed={theme.value === value} onClick={() => setTheme(value)}>
                  {label}
                </button>
              ))}
            </div>
            <div class="row tight" role="group" aria-label={t('language.label')}>
              {(['en', 'id'] as const).map((value) => (
                <button key={value} type="button" class="button small chip" aria-pressed={language.value === value} onClick={() => setLanguage(value)}>
                  {value === 'en' ? 'English' : 'Bahasa Indonesia'}
                </button>
              ))}
            </div>
          </div>
          <hr />
          <button type="button" onClick={() => void signOut().catch((error: Error) => toast(error.message))}>
            <Icon name="out" />
            {t('action.signOut')}
          </button>
        </div>
      )}
    </div>
  );
}
