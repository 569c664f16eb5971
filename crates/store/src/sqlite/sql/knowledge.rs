//! The statements of knowledge: collections, documents, pieces, and what they are found by.
//!
//! Words of the index begin with the number of their tenant. Callers put `#` in its place, and the
//! statement replaces it with the tenant that it is bound to.

use super::{OperatorSql, TenantSql};

statements! {
    TenantSql {
        // Collections.
        COLLECTIONS = "
            SELECT name, documents, chunks, embedding_model, created_at, updated_at FROM knowledge_collections
            WHERE tenant_id = ?1 ORDER BY name";
        SEARCHED_COLLECTIONS = "SELECT number, name, chunks FROM knowledge_collections WHERE tenant_id = ?1";
        COLLECTION = "
            SELECT number, embedding_model FROM knowledge_collections WHERE tenant_id = ?1 AND name = ?2";
        ADD_COLLECTION = "
            INSERT INTO knowledge_collections (tenant_id, name, embedding_model, documents, chunks, created_at, updated_at)
            VALUES (?1, ?2, ?3, 0, 0, ?4, ?4)
            RETURNING number";
        SET_EMBEDDING_MODEL = "
            UPDATE knowledge_collections SET embedding_model = ?3 WHERE tenant_id = ?1 AND number = ?2";
        COUNT_IN_COLLECTION = "
            UPDATE knowledge_collections SET documents = documents + ?3, chunks = chunks + ?4,
                updated_at = MAX(updated_at, ?5)
            WHERE tenant_id = ?1 AND number = ?2";
        FORGET_COLLECTION = "DELETE FROM knowledge_collections WHERE tenant_id = ?1 AND number = ?2";

        // Documents.
        DOCUMENTS = "
            SELECT source, path, digest, language, attributes, chunks, updated_at FROM knowledge_documents
            WHERE tenant_id = ?1 AND collection = ?2 AND (source, path) > (?3, ?4)
            ORDER BY source, path LIMIT ?5";
        DOCUMENTS_OF_SOURCE = "
            SELECT source, path, digest, language, attributes, chunks, updated_at FROM knowledge_documents
            WHERE tenant_id = ?1 AND collection = ?2 AND source = ?3 AND path > ?4
            ORDER BY path LIMIT ?5";
        KNOWN_DOCUMENT = "
            SELECT number, digest, language, attributes, chunks FROM knowledge_documents
            WHERE tenant_id = ?1 AND collection = ?2 AND source = ?3 AND path = ?4";
        SOME_DOCUMENTS = "
            SELECT number FROM knowledge_documents WHERE tenant_id = ?1 AND collection = ?2 LIMIT ?3";
        ADD_DOCUMENT = "
            INSERT INTO knowledge_documents (tenant_id, collection, source, path, language, attributes, digest, chunks,
                updated_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
            RETURNING number";
        FORGET_DOCUMENT = "DELETE FROM knowledge_documents WHERE tenant_id = ?1 AND number = ?2";
        DOCUMENT_FACTS = "
            SELECT number, collection, document.path, language, attributes
            FROM json_each(?2) AS wanted CROSS JOIN knowledge_documents AS document ON number = wanted.value
            WHERE tenant_id = ?1";

        // Pieces.
        ADD_CHUNK = "
            INSERT INTO knowledge_chunks (tenant_id, number, symbol, start_line, end_line, terms, content)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
        ADD_CHUNK_WORDS = "
            INSERT INTO knowledge_words (rowid, words)
            SELECT number, replace(?3, '#', ?1) FROM knowledge_chunks WHERE tenant_id = ?1 AND number = ?2";
        ADD_EMBEDDING = "
            INSERT INTO knowledge_embeddings (tenant_id, collection, chunk, embedding) VALUES (?1, ?2, ?3, ?4)";
        FORGET_CHUNK_WORDS = "
            DELETE FROM knowledge_words WHERE rowid IN (
                SELECT number FROM knowledge_chunks WHERE tenant_id = ?1 AND number BETWEEN ?2 AND ?3
            )";
        FORGET_CHUNKS = "DELETE FROM knowledge_chunks WHERE tenant_id = ?1 AND number BETWEEN ?2 AND ?3";
        FORGET_CHUNK_EMBEDDINGS = "
            DELETE FROM knowledge_embeddings WHERE tenant_id = ?1 AND collection = ?2 AND chunk BETWEEN ?3 AND ?4";
        FORGET_EMBEDDINGS = "DELETE FROM knowledge_embeddings WHERE tenant_id = ?1 AND collection = ?2";

        // What is found.
        COUNT_WORD = "
            SELECT COUNT(*) FROM (
                SELECT ?1 AS tenant_id FROM knowledge_words WHERE knowledge_words MATCH replace(?2, '#', ?1) LIMIT ?3
            ) AS counted";
        CHUNKS_WITH_WORD = "
            SELECT rowid, ?1 AS tenant_id FROM knowledge_words WHERE knowledge_words MATCH replace(?2, '#', ?1) LIMIT ?3";
        CANDIDATES = "
            SELECT chunk.number, start_line, terms, document.number, collection, document.path, language, attributes
            FROM json_each(?2) AS wanted CROSS JOIN knowledge_chunks AS chunk ON chunk.number = wanted.value
                CROSS JOIN knowledge_documents AS document ON document.number = chunk.number >> 16
            WHERE chunk.tenant_id = ?1";
        PICKED = "
            SELECT number, symbol, end_line, content
            FROM json_each(?2) AS wanted CROSS JOIN knowledge_chunks ON number = wanted.value
            WHERE tenant_id = ?1";
        EMBEDDING = "SELECT embedding FROM knowledge_embeddings WHERE tenant_id = ?1 AND collection = ?2 AND chunk = ?3";
    }

    OperatorSql {
        // Everything.
        RESET_COLLECTIONS = "DELETE FROM knowledge_collections";
        RESET_DOCUMENTS = "DELETE FROM knowledge_documents";
        RESET_CHUNKS = "DELETE FROM knowledge_chunks";
        RESET_EMBEDDINGS = "DELETE FROM knowledge_embeddings";
        RESET_CHUNK_WORDS = "INSERT INTO knowledge_words (knowledge_words) VALUES ('delete-all')";
    }
}
