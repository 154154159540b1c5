// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"net/http"
	"time"

	"sigs.k8s.io/yaml"
)

// IPAMClaimKind is the definition of IPAMClaims (k8snetworkplumbingwg/ipamclaims) without their schema.
const IPAMClaimKind = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipamclaims.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {kind: IPAMClaim, listKind: IPAMClaimList, plural: ipamclaims, singular: ipamclaim}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
`

// definition is the part of a CustomResourceDefinition that DefineKind reads.
type definition struct {
	Spec struct {
		Group    string
		Names    struct{ Plural string }
		Versions []struct {
			Name   string
			Served bool
		}
	}
}

// DefineKind creates a kind from its CustomResourceDefinition (YAML or JSON), and waits until the server serves it:
// neither its condition Established nor its entry in the list of groups guarantees that the next request succeeds.
func (s *Server) DefineKind(text []byte) {
	s.t.Helper()
	raw, err := yaml.YAMLToJSON(text)
	if err != nil {
		s.t.Fatal(err)
	}
	var d definition
	if err := yaml.Unmarshal(text, &d); err != nil {
		s.t.Fatal(err)
	}
	s.Do(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(raw))
	for _, v := range d.Spec.Versions {
		if v.Served {
			s.waitServed("/apis/" + d.Spec.Group + "/" + v.Name + "/" + d.Spec.Names.Plural)
		}
	}
}

// waitServed waits until objects of the kind can be listed.
func (s *Server) waitServed(path string) {
	s.t.Helper()
	var code int
	var answer []byte
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if code, answer, err = s.try(http.MethodGet, path, "", nil); err == nil && code == http.StatusOK {
			return
		}
	}
	s.t.Fatalf("kind not served: GET %s: %d %v %s", path, code, err, answer)
}
