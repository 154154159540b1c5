// SPDX-License-Identifier: Apache-2.0

package attach_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/internal/model"
	"github.com/weft-net/weft/internal/nettest"
)

// A bridge holds 1,023 ports. What is dead makes place; what is alive is a clear error that leaves nothing.
func TestFullBridge(t *testing.T) {
	n := newNode(t)
	id, ns := n.pod()
	first := n.job(n.list(bridge), id, ns)
	n.add(first)
	var batch strings.Builder
	for i := range 1022 {
		fmt.Fprintf(&batch, "link add full%d group 4242 type veth peer name peer%d\nlink set full%d master abr0\n", i, i, i)
	}
	nettest.Run(t, nil, "sh", "-c", "ip -batch - <<'END'\n"+batch.String()+"END")
	t.Cleanup(func() { nettest.Run(t, nil, "ip", "link", "del", "group", "4242") })
	id, ns = n.pod()
	next := n.job(n.list(bridge), id, ns)
	_, err := n.Add(t.Context(), next)
	var f *model.Error
	if !errors.As(err, &f) || f.Code != model.CodeTryAgain || !strings.Contains(err.Error(), "1,023") {
		t.Fatalf("ADD to a full bridge: %v", err)
	}
	if err := n.Del(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	n.add(next) // at once: the reaper has not been there
}
