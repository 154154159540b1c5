// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

type m = map[string]any

// update writes deploy/crds anew.
var update = flag.Bool("update", false, "write deploy/crds anew")

// kind is what the definition of a kind needs that its Go type does not say.
type kind struct {
	name, plural string
	typ          reflect.Type
	columns      [][2]string // name, JSON path
	// rules are kept by the API server: CEL expressions about spec, each with its message.
	rules [][2]string
	// status is what is written apart from the specification; nil where there is none.
	status     reflect.Type
	namespaced bool
}

func kinds() []kind {
	return []kind{
		{
			name: "AddressPool", plural: "addresspools", typ: reflect.TypeFor[AddressPoolSpec](), status: reflect.TypeFor[AddressPoolStatus](),
			columns: [][2]string{
				{"Regions", ".spec.regions[*].cidr"},
				{"Mode", ".spec.assignmentMode"},
				{"Encapsulation", ".spec.encapsulation.kind"},
				{"Allocatable", `.status.conditions[?(@.type=="Allocatable")].status`},
				{"Wanted by", ".status.wanted"},
			},
			rules: [][2]string{{
				"has(self.assignmentMode) == has(oldSelf.assignmentMode)",
				"whether a pool is one of the cluster's network cannot be changed: its addresses may be another network's",
			}},
		},
		{
			name: "AddressBlock", plural: "addressblocks", typ: reflect.TypeFor[AddressBlockSpec](),
			columns: [][2]string{{"Pool", ".spec.pool"}, {"CIDR", ".spec.cidr"}, {"Node", ".spec.node"}},
			rules:   [][2]string{{"self.pool == oldSelf.pool && self.cidr == oldSelf.cidr", "pool and cidr cannot be changed"}},
		},
		{
			name: "AddressPoolRequest", plural: "addresspoolrequests", typ: reflect.TypeFor[AddressPoolRequestSpec](),
			columns: [][2]string{{"Node", ".spec.node"}, {"Pool", ".spec.pool"}, {"CIDR", ".spec.cidr"}},
			rules:   [][2]string{{"self == oldSelf", "a request cannot be changed: delete it, and make another"}},
		},
		{
			name: "AddressReservation", plural: "addressreservations", typ: reflect.TypeFor[AddressReservationSpec](),
			columns: [][2]string{{"Addresses", ".spec.addresses"}, {"For", ".spec.for"}},
		},
		{
			name: "AddressClaim", plural: "addressclaims", typ: reflect.TypeFor[AddressClaimSpec](), status: reflect.TypeFor[AddressClaimStatus](),
			namespaced: true,
			columns:    [][2]string{{"Addresses", ".status.addresses"}, {"Node", ".status.node"}, {"Machine", ".spec.virtualMachine.name"}},
			rules:      [][2]string{{"self == oldSelf", "a claim cannot be changed: delete it, and make another"}},
		},
		{
			name: "NodeEndpoints", plural: "nodeendpoints", typ: reflect.TypeFor[NodeEndpointsSpec](),
			columns: [][2]string{{"Pods", ".spec.endpoints[*].pod"}},
		},
		{
			name: "AddressMove", plural: "addressmoves", typ: reflect.TypeFor[AddressMoveSpec](), namespaced: true,
			columns: [][2]string{{"Machine", ".spec.machine"}, {"Addresses", ".spec.addresses"}, {"From", ".spec.source"}, {"To", ".spec.target"}},
			rules: [][2]string{{
				"self.machine == oldSelf.machine && self.addresses == oldSelf.addresses && self.target == oldSelf.target",
				"what moves, and where, cannot be changed",
			}},
		},
	}
}

// limits are what a field must keep to beyond its type, by type and field.
func limits() map[string]m {
	const node = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	cidr := m{"pattern": `^[0-9a-fA-F:.]+/[0-9]{1,3}$`, "maxLength": 43}
	return map[string]m{
		"AddressPoolSpec.Regions": {"maxItems": 1024, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"cidr"}},
		"AddressRegion": {"x-kubernetes-validations": []m{{
			"rule":    "has(self.blockSize) == has(oldSelf.blockSize) && (!has(self.blockSize) || self.blockSize == oldSelf.blockSize)",
			"message": "the blockSize of a region cannot be changed",
		}}},
		"AddressPoolSpec.CooldownSeconds": {"minimum": 0},
		"AddressRegion.CIDR":              cidr,
		"AddressRegion.BlockSize":         {"minimum": 0, "maximum": 128},
		"AddressBlockSpec.CIDR":           cidr,
		"AddressBlockSpec.Node":           {"pattern": node, "maxLength": 253},
		"AddressBlockSpec.Pool":           {"maxLength": 200},
		"AddressPoolRequestSpec.Node":     {"pattern": node, "maxLength": 253},
		"AddressPoolRequestSpec.Pool":     {"maxLength": 200},
		"AddressPoolRequestSpec.CIDR":     cidr,
		"AddressPoolRequestSpec.Claim":    {"maxLength": 317},
		"AddressPoolRequestSpec.Network":  {"maxLength": 253},
		"AddressPoolStatus.Wanted":        {"maxItems": 5000, "items": m{"type": "string", "maxLength": 253}},
		"ReservedAddress.Address":         {"pattern": `^[0-9a-fA-F:.]+$`, "maxLength": 39},
		"ExcludedRange.CIDR":              cidr,
		"AddressPoolSpec.AssignmentMode":  {"enum": []string{"Automatic", "Manual"}},
		"AddressPoolSpec.AllowedUses":     {"maxItems": 3, "items": m{"type": "string", "enum": []string{"Workload", "Tunnel", "LoadBalancer"}}},
		"AddressPoolSpec.NodeSelector":    {"maxLength": 4096}, "AddressPoolSpec.NamespaceSelector": {"maxLength": 4096},
		"AddressPoolSpec.MaxBlocksPerNode": {"minimum": 0},
		"Encapsulation.Kind":               {"enum": []string{"none", "vxlan", "ipip"}},
		"Encapsulation.When":               {"enum": []string{"Always", "CrossSubnet"}},
		"Condition.Status":                 {"enum": []string{"True", "False", "Unknown"}},
		"Condition.LastTransitionTime":     {"format": "date-time"},
		"AddressPoolStatus.Conditions":     {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []string{"type"}},
		"AddressReservationSpec.Addresses": {"maxItems": 1024, "items": m{"type": "string", "pattern": `^[0-9a-fA-F:.]+(/[0-9]{1,3})?$`, "maxLength": 43}},
		"AddressClaimSpec.Addresses":       {"maxItems": 2, "items": m{"type": "string", "pattern": `^[0-9a-fA-F:.]+$`, "maxLength": 39}},
		"NodeEndpointsSpec.Endpoints":      {"maxItems": 4096},
		"Endpoint.Namespace":               {"maxLength": 63},
		"Endpoint.Pod":                     {"maxLength": 253},
		"Endpoint.UID":                     {"maxLength": 64},
		"Endpoint.Network":                 {"maxLength": 317},
		"Endpoint.Interface":               {"maxLength": 15},
		"Endpoint.Addresses":               {"maxItems": 64, "items": m{"type": "string", "pattern": `^[0-9a-fA-F:.]+$`, "maxLength": 39}},
		"AddressMoveSpec.Machine":          {"maxLength": 253},
		"AddressMoveSpec.Addresses":        {"minItems": 1, "maxItems": 64, "items": m{"type": "string", "pattern": `^[0-9a-fA-F:.]+$`, "maxLength": 39}},
		"AddressMoveSpec.Target":           {"pattern": node, "maxLength": 253},
		"AddressMoveSpec.TargetPod":        {"pattern": node, "maxLength": 253},
		"AddressMoveSpec.Source":           {"pattern": node, "maxLength": 253},
		"AddressMoveSpec.Connections":      {"maxLength": 1 << 20},
		"AddressClaimMachine.Name":         {"maxLength": 253},
		"AddressClaimMachine.Kind":         {"maxLength": 63},
		"AddressClaimMachine.UID":          {"maxLength": 63},
		"AddressClaimMachine.Network":      {"maxLength": 253},
		"AddressClaimMachine.Interface":    {"maxLength": 15},
		"AddressClaimSpec.Pools":           {"maxItems": 16, "items": m{"type": "string", "maxLength": 200}},
	}
}

// TestDefinitionsAgree: deploy/crds is what the Go types say.
func TestDefinitionsAgree(t *testing.T) {
	words := comments(t)
	for _, k := range kinds() {
		got, err := yaml.Marshal(definition(k, words))
		if err != nil {
			t.Fatal(err)
		}
		text := "# Made from api/v1alpha1 by `go test ./api/v1alpha1 -update`.\n" + string(got)
		path := filepath.Join("..", "..", "deploy", "crds", Group+"_"+k.plural+".yaml")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		have, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(string(have), text); d != "" {
			t.Errorf("%s does not say what the types say; run `go test ./api/v1alpha1 -update` (-have +want):\n%s", path, d)
		}
	}
}

// comments are the comments of types and fields, by "Type" and "Type.Field".
func comments(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			g, ok := n.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				return true
			}
			spec := g.Specs[0].(*ast.TypeSpec)
			out[spec.Name.Name] = line(g.Doc)
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, n := range field.Names {
						out[spec.Name.Name+"."+n.Name] = line(field.Doc)
					}
				}
			}
			return true
		})
	}
	return out
}

func line(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

func definition(k kind, words map[string]string) m {
	spec := schemaOf(k.typ, words)
	var rules []m
	for _, r := range k.rules {
		rules = append(rules, m{"rule": r[0], "message": r[1]})
	}
	if rules != nil {
		spec["x-kubernetes-validations"] = rules
	}
	var columns []m
	for _, c := range k.columns {
		columns = append(columns, m{"name": c[0], "type": "string", "jsonPath": c[1]})
	}
	lower := strings.ToLower(k.name)
	properties := m{"apiVersion": m{"type": "string"}, "kind": m{"type": "string"}, "metadata": m{"type": "object"}, "spec": spec}
	version := m{
		"name": Version, "served": true, "storage": true, "additionalPrinterColumns": columns,
		"schema": m{"openAPIV3Schema": m{
			"type": "object", "description": words[k.name], "required": []string{"spec"}, "properties": properties,
		}},
	}
	if k.status != nil {
		properties["status"] = schemaOf(k.status, words)
		version["subresources"] = m{"status": m{}}
	}
	scope := "Cluster"
	if k.namespaced {
		scope = "Namespaced"
	}
	return m{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": m{"name": k.plural + "." + Group},
		"spec": m{
			"group": Group, "scope": scope,
			"names":    m{"kind": k.name, "listKind": k.name + "List", "plural": k.plural, "singular": lower},
			"versions": []m{version},
		},
	}
}

func schemaOf(t reflect.Type, words map[string]string) m {
	switch t.Kind() {
	case reflect.String:
		return m{"type": "string"}
	case reflect.Bool:
		return m{"type": "boolean"}
	case reflect.Int32, reflect.Int64:
		return m{"type": "integer", "format": t.Kind().String()}
	case reflect.Pointer:
		return schemaOf(t.Elem(), words)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return m{"type": "string", "format": "byte"}
		}
		return m{"type": "array", "items": schemaOf(t.Elem(), words)}
	case reflect.Map:
		return m{"type": "object", "additionalProperties": schemaOf(t.Elem(), words)}
	case reflect.Struct:
	default:
		panic(fmt.Sprint("no schema for ", t))
	}
	properties, required := m{}, []string{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		s := schemaOf(f.Type, words)
		s["description"] = words[t.Name()+"."+f.Name]
		for k, v := range limits()[t.Name()+"."+f.Name] {
			s[k] = v
		}
		properties[name] = s
		if !strings.Contains(options, "omitempty") {
			required = append(required, name)
		}
	}
	out := m{"type": "object", "description": words[t.Name()], "properties": properties}
	for k, v := range limits()[t.Name()] {
		out[k] = v
	}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}
