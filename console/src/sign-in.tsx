// The sign-in page. The address stays as it is, so that a link to a page leads there afterwards.

import { useState } from 'preact/hooks';
import { useAction } from './hooks';
import { t } from './i18n';
import { sessionError, signInWithKey, singleSignOn } from './session';
import { startAddress } from './single-sign-on';
import { Logo } from './ui/icons';
import { Failure, TextField } from './ui/parts';

export function SignIn() {
  const [key, setKey] = useState('');
  const action = useAction(async () => {
    await signInWithKey(key.trim());
    sessionError.value = null;
  });
  const error = action.error ?? sessionError.value;
  const provider = singleSignOn.value;
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
        <h1>{t('signIn.title')}</h1>
        {error && <Failure error={error} />}
        {provider && (
          <a class="button primary" href={startAddress(provider.start_path, window.location)}>
            {t('signIn.provider', { name: provider.name })}
          </a>
        )}
        <p class="muted">{provider ? t('signIn.orKey') : t('signIn.text')}</p>
        <TextField label={t('signIn.key')} secret value={key} onInput={setKey} placeholder="am_…" code autofocus={!provider} />
        <button type="submit" class={provider ? 'button' : 'button primary'} disabled={action.busy || !key.trim()}>
          {t('signIn.action')}
        </button>
        <p class="small muted">
          {t('signIn.link')} <code>amalgam console link</code>
        </p>
      </form>
    </main>
  );
}
