// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weft-net/weft/internal/cluster/store"
)

// TestOutage has a server that is away for long, refuses, and is back.
func TestOutage(t *testing.T) {
	var b bytes.Buffer
	o := outage{log: slog.New(slog.NewTextHandler(&b, nil))}
	for i := range 9 {
		o.note(store.Nodes(), &url.Error{
			Op: "Get", URL: fmt.Sprint("https://x/?timeoutSeconds=", i), Err: errors.New("connection refused"),
		})
	}
	o.note(store.Nodes(), apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil))
	o.note(store.Nodes(), nil)
	o.note(store.Nodes(), nil)
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	for i, want := range []string{`err="connection refused"`, `err="nodes is forbidden`, "kind is watched again"} {
		if len(lines) != 3 || !strings.Contains(lines[i], want) {
			t.Fatalf("no %q in\n%s", want, b.String())
		}
	}
}
