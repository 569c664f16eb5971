// The console: signs in, then shows the page of the address.

import { render, type ComponentType } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import './styles/base.css';
import './styles/layout.css';
import './styles/parts.css';
import './styles/pages.css';
import './styles/manage.css';
import { language, t } from './i18n';
import { find, isAllowed } from './pages';
import { listenForPalette, Palette } from './palette';
import { followLinks, href, location } from './router';
import { session, start } from './session';
import { Shell } from './shell';
import { SignIn } from './sign-in';
import { startTheme } from './theme';
import { Empty, Failure, Page } from './ui/parts';

type PageComponent = ComponentType<{ parameters: Record<string, string> }>;

const loaded = new Map<string, PageComponent>();

function App() {
  const who = session.value;
  if (who === undefined) return null;
  if (who === null) return <SignIn />;
  return (
    <>
      <Shell>
        <CurrentPage />
      </Shell>
      <Palette />
    </>
  );
}

function CurrentPage() {
  const found = find(location.value.path);
  const page = found && isAllowed(found.page) ? found.page : null;
  const [, renew] = useState(0);
  const [error, setError] = useState<Error>();
  useEffect(() => {
    if (!page || loaded.has(page.path)) return;
    setError(undefined);
    page.load().then(
      (module) => {
        loaded.set(page.path, module.default);
        renew((turn) => turn + 1);
      },
      (failure: unknown) => setError(failure as Error),
    );
  }, [page]);
  if (!found || !page) {
    return (
      <Page title={t('missing.title')}>
        <Empty title={t('missing.text')} action={<a class="button" href={href('/')}>{t('nav.home')}</a>} />
      </Page>
    );
  }
  if (error) {
    return (
      <Page title={t('error.title')}>
        <Failure error={error} retry={() => window.location.reload()} />
      </Page>
    );
  }
  const Component = loaded.get(page.path);
  return Component ? <Component parameters={found.parameters} /> : null;
}

document.documentElement.lang = language.value;
startTheme();
followLinks();
listenForPalette();
void start();
const root = document.getElementById('app');
if (root) render(<App />, root);
