// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// batchSize is how many objects one transaction writes: etcd accepts 128.
const batchSize = 100

// BulkPut writes objects directly into the server's etcd, by their keys below /registry, as the server itself writes
// them: a hundred thousand pods in seconds. Watches of the server report them like any others.
func (s *Server) BulkPut(objects func(yield func(key string, object any) bool)) {
	s.t.Helper()
	var puts []map[string]any
	flush := func() {
		if len(puts) == 0 {
			return
		}
		body, err := json.Marshal(map[string]any{"success": puts})
		if err != nil {
			s.t.Fatal(err)
		}
		answer, err := s.client.Post(s.etcd+"/v3/kv/txn", "application/json", bytes.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		b, _ := io.ReadAll(answer.Body)
		if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
			s.t.Fatal(fmt.Errorf("etcd: %s: %s", answer.Status, b))
		}
		puts = puts[:0]
	}
	for key, object := range objects {
		raw, err := json.Marshal(object)
		if err != nil {
			s.t.Fatal(err)
		}
		puts = append(puts, map[string]any{"requestPut": map[string]any{"key": []byte("/registry/" + key), "value": raw}})
		if len(puts) == batchSize {
			flush()
		}
	}
	flush()
}
