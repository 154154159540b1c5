// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
)

// calicoKinds: it is known whether the server has a kind, also later while it does not answer. A kind of Calico's is
// another one than that of Kubernetes with its name, also in the files of what is known; its labels are kept.
func calicoKinds(t *testing.T, w world) {
	cfg := w.config(t, "n1")
	v := start(t, cfg)
	policies := store.Kind{
		Group: "crd.projectcalico.org", Version: "v1", Kind: "NetworkPolicy", Resource: "networkpolicies", Namespaced: true,
	}
	if has, err := v.Policies().Has(t.Context(), policies); has || err != nil {
		t.Errorf("before its definition: %t, %v", has, err)
	}
	w.Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
	if has, err := v.Policies().Has(t.Context(), policies); has || err != nil {
		t.Errorf("before its definition, while the server does not answer: %t, %v", has, err)
	}
	other := start(t, w.config(t, "n2"))
	if has, err := other.Policies().Has(t.Context(), policies); has || err == nil {
		t.Errorf("on a node whose agent has never asked: %t, %v", has, err)
	}
	other.end()
	w.Refuse(nil)
	w.DefineKind([]byte(strings.NewReplacer("GROUP", policies.Group).Replace(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: networkpolicies.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: NetworkPolicy, listKind: NetworkPolicyList, plural: networkpolicies, singular: networkpolicy}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`)))
	if has, err := v.Policies().Has(t.Context(), policies); !has || err != nil {
		t.Errorf("after its definition: %t, %v", has, err)
	}
	for _, path := range []string{"crd.projectcalico.org", "networking.k8s.io"} {
		w.Do("POST", "/apis/"+path+"/v1/namespaces/default/networkpolicies", object{
			"apiVersion": path + "/v1", "kind": "NetworkPolicy", "metadata": object{"name": "same", "labels": object{"a": "b"}},
			"spec": object{"podSelector": object{}},
		})
	}
	watch := func(v view) (known map[string]bool, end func()) {
		ctx, cancel := context.WithCancel(context.Background())
		events, err := v.Policies().Watch(ctx, store.NetworkPolicies(), policies)
		if err != nil {
			t.Fatal(err)
		}
		known = map[string]bool{}
		for late := time.After(long); ; {
			select {
			case e := <-events:
				if e.Type == store.Synced {
					return known, func() {
						cancel()
						for range events { // until what is known is written
						}
					}
				}
				known[fmt.Sprint(e.Object.Key.Group, strings.Contains(string(e.Object.Raw), `"labels":{"a":"b"}`))] = true
			case <-late:
				t.Fatal("never synced")
			}
		}
	}
	check := func(what string, known map[string]bool) {
		if len(known) != 2 || !known["crd.projectcalico.orgtrue"] || !known["networking.k8s.iotrue"] {
			t.Errorf("%s: %v", what, known)
		}
	}
	known, end := watch(v)
	check("of the server", known)
	end()
	v.end()
	w.Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
	defer w.Refuse(nil)
	v = start(t, cfg)
	defer v.end()
	if has, err := v.Policies().Has(t.Context(), policies); !has || err != nil {
		t.Errorf("while the server does not answer: %t, %v", has, err)
	}
	known, end = watch(v)
	check("of the file", known)
	end()
}
