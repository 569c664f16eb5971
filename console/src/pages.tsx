// The pages and their place in the navigation. A page's script is loaded when it is opened for the first time.

import type { ComponentType } from 'preact';
import { maySee, mayUse } from './session';
import type { Key } from './i18n';
import { match } from './match';
import type { IconName } from './ui/icons';

export interface PageInfo {
  /** The path, with `:name` for parameters. */
  path: string;
  load: () => Promise<{ default: ComponentType<{ parameters: Record<string, string> }> }>;
  /** Its entry in the navigation; none for pages that are opened from others. */
  entry?: { label: Key; icon: IconName; group: 'observe' | 'build' | 'run' };
  /** Whether the session may see it. */
  allowed?: () => boolean;
}

export const PAGES: PageInfo[] = [
  { path: '/', load: () => import('./pages/home'), entry: { label: 'nav.home', icon: 'home', group: 'observe' } },
  { path: '/turns', load: () => import('./pages/turns'), entry: { label: 'nav.turns', icon: 'list', group: 'observe' } },
  { path: '/turns/:id', load: () => import('./pages/turn') },
  { path: '/compare', load: () => import('./pages/compare') },
  { path: '/sessions', load: () => import('./pages/sessions'), entry: { label: 'nav.sessions', icon: 'chat', group: 'observe' } },
  { path: '/sessions/:id', load: () => import('./pages/session') },
  { path: '/agent-sessions/:id', load: () => import('./pages/agent-session') },
  { path: '/conversations/:id', load: () => import('./pages/conversation') },
  { path: '/usage', load: () => import('./pages/usage'), entry: { label: 'nav.usage', icon: 'chart', group: 'observe' } },
  { path: '/playground', load: () => import('./pages/playground'), entry: { label: 'nav.playground', icon: 'play', group: 'build' }, allowed: () => mayUse.value },
  { path: '/profiles', load: () => import('./pages/profiles'), entry: { label: 'nav.profiles', icon: 'person', group: 'build' } },
  { path: '/profiles/:slug', load: () => import('./pages/profile') },
  { path: '/modes/:name', load: () => import('./pages/mode') },
  { path: '/tools', load: () => import('./pages/tools'), entry: { label: 'nav.tools', icon: 'tool', group: 'build' } },
  { path: '/tools/:name', load: () => import('./pages/tool') },
  { path: '/knowledge', load: () => import('./pages/knowledge'), entry: { label: 'nav.knowledge', icon: 'book', group: 'build' } },
  { path: '/courses', load: () => import('./pages/courses'), entry: { label: 'nav.courses', icon: 'course', group: 'build' } },
  { path: '/approvals', load: () => import('./pages/approvals'), entry: { label: 'nav.approvals', icon: 'check', group: 'run' } },
  { path: '/keys', load: () => import('./pages/keys'), entry: { label: 'nav.keys', icon: 'key', group: 'run' } },
  { path: '/limits', load: () => import('./pages/limits'), entry: { label: 'nav.limits', icon: 'gauge', group: 'run' } },
  { path: '/tenants/:id', load: () => import('./pages/tenant') },
  { path: '/system', load: () => import('./pages/system'), entry: { label: 'nav.system', icon: 'gear', group: 'run' } },
  { path: '/api', load: () => import('./pages/api'), entry: { label: 'nav.api', icon: 'code', group: 'run' } },
];

export const GROUPS = ['observe', 'build', 'run'] as const;

/** The page of a path, with the parameters in it. */
export function find(path: string): { page: PageInfo; parameters: Record<string, string> } | null {
  for (const page of PAGES) {
    const parameters = match(page.path, path);
    if (parameters) return { page, parameters };
  }
  return null;
}

export function isAllowed(page: PageInfo): boolean {
  return page.allowed ? page.allowed() : maySee.value;
}
