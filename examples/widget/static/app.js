// The product's own script: it tells the widget where to get a token.

const assistant = document.querySelector('amalgam-assistant');

assistant.getClientSecret = async () => {
  const response = await fetch('/client-secret', { method: 'POST' });
  if (!response.ok) throw new Error(`no token: ${response.status}`);
  return response.json();
};

assistant.addEventListener('amalgam:error', (event) => console.info('assistant:', event.detail.code, event.detail.status));
