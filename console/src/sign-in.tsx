// The sign-in page. The address stays as it is, so that a link to a page leads there afterwards.

import { useState } from 'preact/hooks';
import { useAction } from './hooks';
import { t } from './i18n';
import { sessionError, signInWithKey } from './session';
import { Logo } from './ui/icons';
import { Failure, TextField } from './ui/parts';

export function SignIn() {
  const [key, setKey] = useState('');
  const action = useAction(async () => {
    await signInWithKey(key.trim());
    sessionError.value = null;
  });
  const error = action.error ?? sessionError.value;
  return (
    <main class="gate">
      <form
        class="gate-card stack"
        onSubmit={(event) => {
          event.preventDefault();
          void action.run();
        }}
      >
        <div class="brand gate-brand">
          <Logo />
          Amalgam
        </div>
        <div>
          <h1>{t('signIn.title')}</h1>
          <p class="muted">{t('signIn.text')}</p>
        </div>
        <TextField label={t('signIn.key')} secret value={key} onInput={setKey} placeholder="am_…" code autofocus />
        {error && <Failure error={error} />}
        <button type="submit" class="button primary" disabled={action.busy || !key.trim()}>
          {t('signIn.action')}
        </button>
        <p class="small muted">
          {t('signIn.link')} <code>amalgam console link</code>
        </p>
      </form>
    </main>
  );
}
