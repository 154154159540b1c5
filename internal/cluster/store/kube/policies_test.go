// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/cluster/store"
	"github.com/weft-net/weft/internal/model"
)

// policies: the fields that policies use are sent for all nodes, and no others; an irrelevant change sends nothing; a
// kind that the server does not have has no objects.
func policies(t *testing.T, w world) {
	cfg := w.config(t, "n1")
	v := start(t, cfg)
	var events <-chan store.Event
	watch := func(v view) context.CancelFunc {
		ctx, cancel := context.WithCancel(context.Background())
		var err error
		events, err = v.Policies().Watch(ctx, store.NetworkPolicies(), store.ClusterNetworkPolicies(), store.Pods(),
			store.NodeEndpoints())
		if err != nil {
			t.Fatal(err)
		}
		return cancel
	}
	cancel := watch(v)
	ctx := t.Context()
	next := func(what string, is func(store.Event) bool) store.Event {
		t.Helper()
		late := time.After(long)
		for {
			select {
			case e := <-events:
				if is(e) {
					return e
				}
			case <-late:
				t.Fatalf("never told: %s", what)
			}
		}
	}
	next("everything", func(e store.Event) bool { return e.Type == store.Synced })
	w.pod(t, "pol-other", "n2", object{"a": "b", "kubernetes.io/config.hash": "0123"})
	of := func(name string) func(store.Event) bool {
		return func(e store.Event) bool { return e.Object.Key.Name == name }
	}
	e := next("the pod", of("pol-other"))
	p, err := e.Object.Pod()
	if err != nil || p.Node != "n2" || len(p.Annotations) != 1 || p.Annotations["kubernetes.io/config.hash"] != "0123" {
		t.Errorf("%+v %v", p, err)
	}
	// An annotation is nothing to policies, an address is.
	w.Do("PATCH", "/api/v1/namespaces/default/pods/pol-other", object{
		"metadata": object{"annotations": object{"more": "1"}},
	})
	w.Do("PATCH", "/api/v1/namespaces/default/pods/pol-other/status", object{
		"status": object{"phase": "Running", "podIPs": []object{{"ip": "10.1.2.3"}}, "podIP": "10.1.2.3"},
	})
	e = next("the address", of("pol-other"))
	if p, err = e.Object.Pod(); err != nil || len(p.IPs) != 1 || p.IPs[0] != netip.MustParseAddr("10.1.2.3") ||
		e.Type != store.Modified {
		t.Errorf("the first news of the pod is %s %+v %v", e.Type, p, err)
	}
	w.Do("POST", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", object{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": "pol"},
		"spec": object{"podSelector": object{}, "ingress": []object{{"ports": []object{{"port": 80}}}}},
	})
	e = next("the policy", of("pol"))
	if pol, err := e.Object.Policy(); err != nil || !pol.Ingress.On || pol.Egress.On || len(pol.Ingress.Rules) != 1 ||
		len(pol.Errors) > 0 {
		t.Errorf("%+v %v", pol, err)
	}
	full, err := v.Objects().Get(ctx, store.NetworkPolicies(), store.NetworkPolicies().Key("default", "pol"))
	if err != nil {
		t.Fatal(err)
	}
	_ = v.EventOn(ctx, store.NetworkPolicies(), full, model.Event{
		Warning: true, Reason: "UnsupportedPolicy", Message: "m",
	})
	eventually(t, "the event", func() bool { // kubectl describe asks for the UID
		return strings.Contains(
			string(w.Do("GET", "/api/v1/namespaces/default/events?fieldSelector=involvedObject.kind=NetworkPolicy,"+
				"involvedObject.apiVersion=networking.k8s.io%2Fv1,involvedObject.namespace=default,involvedObject.name=pol,"+
				"involvedObject.resourceVersion="+full.Version+",involvedObject.uid="+full.UID(), nil)),
			"UnsupportedPolicy",
		)
	})
	w.Do("DELETE", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies/pol", nil)
	if e = next("the policy gone", of("pol")); e.Type != store.Deleted || !e.Object.Key.Of(store.NetworkPolicies()) ||
		e.Object.Key.Namespace != "default" {
		t.Errorf("%+v", e)
	}
	mine := model.WorkloadEndpoint{
		Pod: model.PodRef{Namespace: "default", Name: "pol-other"}, Node: "n2", IfName: "eth0", Addrs: addrs("10.1.2.4"),
	}
	o, err := store.NodeEndpointsObject(store.Object{}, "n2", []model.WorkloadEndpoint{mine})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Objects().Create(ctx, store.NodeEndpoints(), o); err != nil {
		t.Fatal(err)
	}
	e = next("another node's interfaces", of("n2"))
	if all, err := e.Object.NodeEndpoints(); err != nil || len(all) != 1 || !all[0].Equal(mine) ||
		strings.Contains(string(e.Object.Raw), "managedFields") {
		t.Errorf("%+v %v %s", all, err, e.Object.Raw)
	}
	cancel()
	for range events { // until what is known is written
	}
	v.end()
	// An agent that starts while the server is unavailable gets the objects of the one before it.
	w.Refuse(func(*http.Request) int { return http.StatusServiceUnavailable })
	v = start(t, cfg)
	stop := watch(v)
	defer func() { // what is known is written to the end
		stop()
		for range events {
		}
		v.end()
	}()
	var known []string
	next("what was known, and that this was all", func(e store.Event) bool {
		if e.Type == store.Added {
			known = append(known, e.Object.Key.Name)
		}
		return e.Type == store.Synced
	})
	if !slices.Contains(known, "pol-other") || !slices.Contains(known, "n2") || slices.Contains(known, "pol") {
		t.Errorf("known are %v", known)
	}
	w.Refuse(nil)
	w.Do("DELETE", "/api/v1/namespaces/default/pods/pol-other?gracePeriodSeconds=0", nil)
	next("what changed meanwhile", func(e store.Event) bool {
		return e.Type == store.Deleted && e.Object.Key.Name == "pol-other"
	})
}
