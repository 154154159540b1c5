// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weft-net/weft/api/v1alpha1"
)

// TestFlowListener: an object has what it was made of, keeps what it had besides, and one that is not valid says which field.
func TestFlowListener(t *testing.T) {
	want := v1alpha1.FlowListenerSpec{Address: ":9443", Key: "abc="}
	o, err := NewObject([]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"FlowListener","metadata":{"name":"n1"},"spec":{"new":1,"key":"old"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []Object{{}, o} {
		o, err := FlowListenerObject(from, "n1", want)
		if err != nil || o.Key != FlowListeners().Key("", "n1") || from.Raw != nil && !strings.Contains(string(o.Raw), `"new":1`) {
			t.Fatalf("%v: %s", err, o.Raw)
		}
		if got, err := o.FlowListener(); err != nil || got != want {
			t.Errorf("%+v, %v", got, err)
		}
	}
	for spec, says := range map[string]string{
		`{"address":"x","key":"abc="}`: `FlowListener n1: spec: address "x"`,
		`{"address":":9443"}`:          "FlowListener n1: spec: it has no key",
		`{}`:                           `FlowListener n1: spec: address ""`,
	} {
		o, err := NewObject([]byte(`{"apiVersion":"weft.dev/v1alpha1","kind":"FlowListener","metadata":{"name":"n1"},"spec":` + spec + `}`))
		if err == nil {
			_, err = o.FlowListener()
		}
		if err == nil || !strings.HasPrefix(err.Error(), says) || !strings.Contains(err.Error(), "restart the node's agent") {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// TestAnnotatedFlowListener: the annotation of an agent of an earlier version.
func TestAnnotatedFlowListener(t *testing.T) {
	for _, c := range []struct {
		annotation string
		has        bool
		says       string
	}{
		{"", false, ""},
		{`{"address":":9443","key":"abc="}`, true, ""},
		{"not valid", true, `Node n1: annotation weft.dev/flow-listener "not valid"`},
		{`{"address":":9443"}`, true, "it has no key"},
	} {
		annotations := map[string]string{"theirs": "1"}
		if c.annotation != "" {
			annotations[FlowListenerAnnotation] = c.annotation
		}
		b, err := json.Marshal(annotations)
		if err != nil {
			t.Fatal(err)
		}
		o, err := NewObject(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","annotations":%s}}`, b))
		if err != nil {
			t.Fatal(err)
		}
		l, has, err := o.AnnotatedFlowListener()
		if has != c.has || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) ||
			c.has && c.says == "" && l.Key != "abc=" {
			t.Errorf("%s: %+v, %v, %v", c.annotation, l, has, err)
		}
	}
}
