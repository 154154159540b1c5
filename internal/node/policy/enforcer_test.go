// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"strings"
	"testing"
)

const onlyFriends = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {namespace: shop, name: friends}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {friend: "yes"}}}]
    ports: [{port: web}]
`

// TestPolicyIsObeyed: a NetworkPolicy blocks real packets between pods, allows others, and follows changes.
func TestPolicyIsObeyed(t *testing.T) {
	w := newWorld(t)
	w.start()
	web, friend, other := w.pod("shop/web", "app: web"), w.pod("shop/friend", `friend: "yes"`),
		w.pod("shop/other", "app: other")
	w.serve(web, 80)
	w.serve(web, 81)
	w.eventually("without a policy pods reach each other", func() bool {
		return reaches(friend.ns, web, 80) && reaches(other.ns, web, 80)
	})
	if out := ruleset(); strings.Contains(out, "weft-policy") {
		t.Errorf("without a policy there is a table:\n%s", out)
	}
	w.manifest("friends", onlyFriends)
	w.eventually("the policy denies", func() bool { return !reaches(other.ns, web, 80) })
	w.eventually("a friend reaches the port", func() bool { return reaches(friend.ns, web, 80) })
	if reaches(friend.ns, web, 81) {
		t.Errorf("a friend reaches another port:\n%s", ruleset())
	}
	w.eventually("the node reaches its own pod", func() bool { return reaches(nil, web, 81) })
	w.object("shop/other", `friend: "yes"`, "n1")
	w.eventually("a new label is followed", func() bool { return reaches(other.ns, web, 80) })
	w.object("shop/friend", `friend: "no"`, "n1")
	w.eventually("a lost label is followed", func() bool { return !reaches(friend.ns, web, 80) })
	w.remove("friends")
	w.eventually("a deleted policy is none", func() bool { return reaches(friend.ns, web, 81) })
	w.eventually("the last policy's table is gone", func() bool { return !strings.Contains(ruleset(), "weft-policy") })
}
