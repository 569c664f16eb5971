// A table of a paged list, with its states.

import type { ComponentChildren } from 'preact';
import { t } from '../i18n';
import type { Paged } from '../paged';
import { Card, Empty, Failure, Loading } from './parts';

export interface ListColumn<T> {
  label: string;
  number?: boolean;
  cell: (row: T) => ComponentChildren;
}

export function ListCard<T>(props: {
  list: Paged<T>;
  columns: ListColumn<T>[];
  rowKey: (row: T) => string;
  empty: string;
  emptyText?: ComponentChildren;
  emptyAction?: ComponentChildren;
  title?: ComponentChildren;
  actions?: ComponentChildren;
}) {
  const { list } = props;
  return (
    <Card
      flush
      title={props.title}
      actions={props.actions}
      foot={
        list.more && (
          <button type="button" class="button small" disabled={list.loading} onClick={list.next}>
            {t('list.more')}
          </button>
        )
      }
    >
      {list.error && (
        <div class="card-body">
          <Failure error={list.error} retry={list.reload} />
        </div>
      )}
      {list.rows.length > 0 && (
        <div class="table-wrap" tabIndex={0} role="group" aria-label={typeof props.title === 'string' ? props.title : t('list.label')}>
          <table class="table">
            <thead>
              <tr>
                {props.columns.map((column) => (
                  <th key={column.label} scope="col" class={column.number ? 'num' : ''}>
                    {column.label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {list.rows.map((row) => (
                <tr key={props.rowKey(row)}>
                  {props.columns.map((column) => (
                    <td key={column.label} class={column.number ? 'num' : ''}>
                      {column.cell(row)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {!list.rows.length && list.loading && <Loading />}
      {!list.rows.length && !list.loading && !list.error && (
        <Empty title={props.empty} action={props.emptyAction}>
          {props.emptyText}
        </Empty>
      )}
    </Card>
  );
}
