// Every page and every tab, with its heading.

import { seeded } from './seed';

export type Place = [path: string, title: string];

/** The pages of the navigation. */
export const PAGES: Place[] = [
  ['/', 'Overview'],
  ['/turns', 'Turns'],
  ['/sessions', 'Sessions'],
  ['/usage', 'Usage'],
  ['/profiles', 'Profiles and modes'],
  ['/tools', 'Tools'],
  ['/knowledge', 'Knowledge'],
  ['/approvals', 'Approvals'],
  ['/keys', 'Keys and tenants'],
  ['/keys?tab=sessions', 'Keys and tenants'],
  ['/system', 'System'],
  ['/system?tab=audit', 'System'],
  ['/api', 'API reference'],
];

/** All pages with objects of the seed, and all tabs. */
export function everyPlace(): Place[] {
  const turn = (tab: string): Place => [`/turns/${seeded.toolTurn}${tab && `?tab=${tab}`}`, 'Turn'];
  return [
    ...PAGES,
    ['/playground', 'Playground'],
    ...['', 'time', 'calls', 'tools', 'context', 'events', 'json'].map(turn),
    [`/compare?a=${seeded.ids[0]}&b=${seeded.ids[1]}`, 'Compare turns'],
    [`/sessions/${seeded.sessionId}`, `Session ${seeded.sessionId}`],
    ['/profiles?tab=modes', 'Profiles and modes'],
    ['/profiles/course-assistant', 'course-assistant'],
    ['/modes/QA', 'Questions and answers'],
    ['/tools/get_course_detail?common=true', 'get_course_detail'],
    ['/keys?tab=tenants', 'Keys and tenants'],
    ['/tenants/1', 'Settings of demo'],
    ['/system?tab=webhooks', 'System'],
  ];
}
