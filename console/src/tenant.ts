// The tenant that an operator looks at: links inside a page lead to the same one.

import { location } from './router';

/** `tenant_id` of the pages of one object. A list may show all tenants, or one, as `tenant`. */
export function tenantOfPage(): string | null {
  const { query } = location.value;
  const tenant = query.get('tenant') ?? query.get('tenant_id');
  return tenant && tenant !== 'all' ? tenant : null;
}
