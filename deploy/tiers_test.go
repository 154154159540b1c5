// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/nettest"
)

const (
	calicoURL    = "/apis/projectcalico.org/v3/"
	calicoShopV3 = calicoURL + "namespaces/shop/"
	calicoShopV1 = "/apis/crd.projectcalico.org/v1/namespaces/shop/"
)

// calicoKind is the definition of one of Calico's kinds, without its schema.
func calicoKind(group, version, plural, kind, scope string) []byte {
	return fmt.Appendf(nil, `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[3]s.%[1]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[1]s
  scope: %[5]s
  names: {kind: %[4]s, listKind: %[4]sList, plural: %[3]s, singular: %[6]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, version, plural, kind, scope, strings.ToLower(kind))
}

// calico is a policy of one of Calico's kinds, in projectcalico.org/v3; an empty tier is not in it.
func calico(kind, name, tier string) string {
	spec := object{"selector": "all()"}
	if tier != "" {
		spec["tier"] = tier
	}
	b, _ := json.Marshal(object{
		"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": object{"name": name}, "spec": spec,
	})
	return string(b)
}

// rule is one of a ClusterRole, on resources of projectcalico.org.
func rule(resources, names, verbs string) object {
	o := object{
		"apiGroups": []string{"projectcalico.org"}, "resources": strings.Fields(resources), "verbs": strings.Fields(verbs),
	}
	if names != "" {
		o["resourceNames"] = strings.Fields(names)
	}
	return o
}

// allow makes a role of rules and binds it to users: in the namespace shop, or in all.
func (c *cluster) allow(name string, clusterWide bool, users []string, rules ...object) {
	c.t.Helper()
	const group = "/apis/rbac.authorization.k8s.io/v1/"
	at, role, binding := group+"clusterroles", "ClusterRole", "ClusterRoleBinding"
	if !clusterWide {
		at, role, binding = group+"namespaces/shop/roles", "Role", "RoleBinding"
	}
	c.Do(http.MethodPost, at, object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": role, "metadata": object{"name": name}, "rules": rules,
	})
	var subjects []object
	for _, u := range users {
		subjects = append(subjects, object{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": u})
	}
	c.Do(http.MethodPost, strings.TrimSuffix(at, "s")+"bindings", object{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": binding, "metadata": object{"name": name}, "subjects": subjects,
		"roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
	})
}

// TestTiers: who may write a policy of Calico's in which tier is as with Calico's webhook.
func TestTiers(t *testing.T) {
	nettest.EndToEnd(t)
	c := newCluster(t)
	for plural, kind := range map[string]string{
		"networkpolicies": "NetworkPolicy", "globalnetworkpolicies": "GlobalNetworkPolicy",
		"stagednetworkpolicies": "StagedNetworkPolicy", "stagedglobalnetworkpolicies": "StagedGlobalNetworkPolicy",
		"stagedkubernetesnetworkpolicies": "StagedKubernetesNetworkPolicy", "tiers": "Tier",
	} {
		scope := "Namespaced"
		if strings.Contains(plural, "global") || plural == "tiers" {
			scope = "Cluster"
		}
		c.DefineKind(calicoKind("projectcalico.org", "v3", plural, kind, scope))
	}
	c.DefineKind(calicoKind("crd.projectcalico.org", "v1", "networkpolicies", "NetworkPolicy", "Namespaced"))
	c.must("create", "namespace", "shop")
	users := []string{"nobody", "team", "mine", "blind", "reader", "shop"}
	own := rule("networkpolicies globalnetworkpolicies stagednetworkpolicies stagedglobalnetworkpolicies stagedkubernetesnetworkpolicies",
		"", "*")
	v1 := rule("networkpolicies", "", "*")
	v1["apiGroups"] = []string{"crd.projectcalico.org"}
	c.allow("kinds", true, users, own, v1)
	c.allow("team-tier", true, []string{"team", "mine", "reader", "shop"}, rule("tiers", "team", "get"))
	all := "tier.networkpolicies tier.globalnetworkpolicies tier.stagednetworkpolicies tier.stagedglobalnetworkpolicies"
	c.allow("team-policies", true, []string{"team", "blind"}, rule(all, "team.*", "create update delete"))
	c.allow("team-mine", true, []string{"mine"}, rule("tier.networkpolicies", "mine", "create update delete"))
	c.allow("team-read", true, []string{"reader"}, rule(all, "team.*", "get list watch"))
	c.allow("team-shop", false, []string{"shop"}, rule(all, "team.*", "*"))
	c.must("apply", "-f", "base/tiers.yaml")

	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		code, says := c.ask("admin as nobody", "POST", calicoShopV3+"networkpolicies?dryRun=All", calico("NetworkPolicy", "x", ""))
		if code == http.StatusForbidden {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("the policy of tiers is not in force: %d %s", code, says)
		}
	}
	for _, x := range tierTries() {
		user, name, _ := strings.Cut(x.name, ": ")
		token := "admin"
		if user != "admin" {
			token = "admin as " + user
		}
		x.name = user + ": " + name
		c.try(token, x)
	}
	out := c.must("get", "validatingadmissionpolicy", "weft-tiers", "-o", "jsonpath={.status.typeChecking}")
	if strings.Contains(out, "Warning") {
		t.Errorf("the types of the expressions: %s", out)
	}
}

// tierTries are in order; a name begins with the user.
func tierTries() []try {
	const (
		np, gnp = calicoShopV3 + "networkpolicies", calicoURL + "globalnetworkpolicies"
		created = http.StatusCreated
		ok      = http.StatusOK
		denied  = http.StatusForbidden
	)
	tries := []try{
		{"admin: in a tier", "POST", np, calico("NetworkPolicy", "theirs", "team"), created, ""},
		{"admin: in the default tier", "POST", np, calico("NetworkPolicy", "admins", ""), created, ""},
		{"admin: in all namespaces", "POST", gnp, calico("GlobalNetworkPolicy", "theirs", "team"), created, ""},

		{
			"nobody: in the default tier", "POST", np, calico("NetworkPolicy", "x", ""), denied,
			`User "nobody" cannot create networkpolicies.projectcalico.org in namespace "shop" in tier default (user cannot get tier)`,
		},
		{"nobody: in a tier", "POST", gnp, calico("GlobalNetworkPolicy", "x", "team"), denied, `globalnetworkpolicies.projectcalico.org in tier team`},
		{"nobody: changed", swap, np + "/admins", `{"spec":{"order":1}}`, denied, "cannot update"},
		{"nobody: patched", "PATCH", np + "/admins", `{"spec":{"order":1}}`, denied, "cannot update"},
		{"nobody: deleted", "DELETE", np + "/admins", "", denied, "cannot delete"},
		{"nobody: read", "GET", np + "/admins", "", ok, ""},
		{"nobody: written as it is stored", "POST", calicoShopV1 + "networkpolicies", strings.ReplaceAll(calico("NetworkPolicy", "x", "team"), "projectcalico.org/v3", "crd.projectcalico.org/v1"), created, ""},

		{"team: in the tier", "POST", np, calico("NetworkPolicy", "team", "team"), created, ""},
		{"team: in all namespaces", "POST", gnp, calico("GlobalNetworkPolicy", "team", "team"), created, ""},
		{"team: changed", swap, np + "/team", `{"spec":{"order":1}}`, ok, ""},
		{"team: patched", "PATCH", np + "/team", `{"spec":{"order":2}}`, ok, ""},
		{"team: in the default tier", "POST", np, calico("NetworkPolicy", "x", ""), denied, "in tier default"},
		{"team: in the default tier, empty", "POST", np, strings.Replace(calico("NetworkPolicy", "x", "-"), `"-"`, `""`, 1), denied, "in tier default"},
		{"team: in another tier", "POST", np, calico("NetworkPolicy", "x", "teams"), denied, "in tier teams"},
		{"team: moved away", "PATCH", np + "/team", `{"spec":{"tier":"default"}}`, denied, "in tier default"},
		{"team: moved away by no tier", "PATCH", np + "/team", `{"spec":{"tier":null}}`, denied, "in tier default"},
		{"team: moved in", "PATCH", np + "/admins", `{"spec":{"tier":"team"}}`, denied, "cannot update networkpolicies.projectcalico.org in namespace \"shop\" in tier default"},
		{"admin: moved", "PATCH", np + "/admins", `{"spec":{"tier":"team"}}`, ok, ""},
		{"admin: moved back", "PATCH", np + "/admins", `{"spec":{"tier":"default"}}`, ok, ""},
		{"team: all deleted", "DELETE", np, "", denied, "in tier default"},
		{"team: deleted", "DELETE", gnp + "/team", "", ok, ""},

		{"mine: another name", "POST", np, calico("NetworkPolicy", "other", "team"), denied, "in tier team"},
		{"mine: its name", "POST", np, calico("NetworkPolicy", "mine", "team"), created, ""},
		{"mine: another kind", "POST", gnp, calico("GlobalNetworkPolicy", "mine", "team"), denied, "in tier team"},
		{"mine: another's deleted", "DELETE", np + "/theirs", "", denied, "in tier team"},
		{"mine: deleted", "DELETE", np + "/mine", "", ok, ""},

		{"blind: without get", "POST", np, calico("NetworkPolicy", "x", "team"), denied, "in tier team (user cannot get tier)"},
		{"reader: written", "POST", np, calico("NetworkPolicy", "x", "team"), denied, "in tier team"},
		{"reader: deleted", "DELETE", np + "/theirs", "", denied, "in tier team"},
		{"shop: in its namespace", "POST", np, calico("NetworkPolicy", "shop", "team"), created, ""},
		{"shop: in another", "POST", calicoURL + "namespaces/default/networkpolicies", calico("NetworkPolicy", "shop", "team"), denied, `namespace "default" in tier team`},
		{"shop: in all", "POST", gnp, calico("GlobalNetworkPolicy", "shop", "team"), denied, "in tier team"},

		{
			"system:serviceaccount:kube-system:namespace-controller: a namespace that ends", "DELETE", np, "", ok, "",
		},
		{
			"system:serviceaccount:kube-system:generic-garbage-collector: an owner that is gone", "DELETE", gnp + "/theirs", "", ok, "",
		},
	}
	for _, kind := range []string{"StagedNetworkPolicy", "StagedGlobalNetworkPolicy"} {
		at := calicoShopV3
		if strings.Contains(kind, "Global") {
			at = calicoURL
		}
		at += strings.ToLower(strings.TrimSuffix(kind, "y")) + "ies"
		tries = append(tries,
			try{"nobody: staged", "POST", at, calico(kind, "x", "team"), denied, "in tier team"},
			try{"team: staged", "POST", at, calico(kind, "x", "team"), created, ""},
			try{"team: staged elsewhere", "POST", at, calico(kind, "y", ""), denied, "in tier default"},
		)
	}
	kubernetes := calicoShopV3 + "stagedkubernetesnetworkpolicies"
	return slices.Concat(tries, []try{
		{"team: a copy of Kubernetes' own, staged", "POST", kubernetes, calico("StagedKubernetesNetworkPolicy", "x", ""), denied, "in tier default"},
		{"admin: a copy of Kubernetes' own, staged", "POST", kubernetes, calico("StagedKubernetesNetworkPolicy", "x", ""), created, ""},
	})
}
