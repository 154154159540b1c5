// SPDX-License-Identifier: Apache-2.0

package recent

import (
	"fmt"
	"testing"
)

// Values of texts that are used stay, others do not pile up.
func TestCache(t *testing.T) {
	var c Cache[int]
	all := []byte("of all callers")
	c.Put(all, -1)
	for i := range 5 * most {
		own := []byte(fmt.Sprint(i))
		if _, found := c.Get(own); found {
			t.Fatalf("%d was never put", i)
		}
		c.Put(own, i)
		if v, found := c.Get(own); !found || v != i {
			t.Fatalf("%d: %d, %v", i, v, found)
		}
		if v, found := c.Get(all); !found || v != -1 {
			t.Fatalf("after %d others: %d, %v", i, v, found)
		}
	}
	if n := len(c.now) + len(c.old); n > 2*most {
		t.Errorf("%d values", n)
	}
	if _, found := c.Get([]byte("0")); found {
		t.Error("a value stays that was not used for long")
	}
	long := make([]byte, longest+1)
	if c.Put(long, 1); c.now[string(long)] != 0 {
		t.Error("a long text is kept")
	}
}
