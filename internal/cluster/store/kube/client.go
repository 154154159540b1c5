// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/weft-net/weft/internal/model"
)

// serviceAccount is the directory of a pod's token and of the server's CA certificate.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount"

// Rate limits of an agent's requests per second, and bursts. Lookups have their own limit, so that an ADD does not wait
// for the annotations of other pods; so have reviews, which every client of a listener can cause.
const (
	workQPS, workBurst     = 50, 100
	lookupQPS, lookupBurst = 20, 100
	reviewQPS, reviewBurst = 10, 20
)

// Access configures the access to the API server.
type Access struct {
	// InCluster uses the pod's service account. Kubeconfig is the path of a file, or of several as in $KUBECONFIG; one of
	// the two is required. Context, with a Kubeconfig, is another context than its current one.
	InCluster           bool
	Kubeconfig, Context string
	// Server overrides the URL of the server.
	Server string
	// Secrets is the directory of the service account's files; empty is the default.
	Secrets string
	Getenv  func(string) string
}

// clients share connections and have separate rate limits.
type clients struct {
	work, lookup, review *rest.RESTClient
	conns                *connrotation.Dialer
}

// The timeout and the keepalive interval of connections: the values of net/http.
const dialTimeout, keepAlive = 30 * time.Second, 30 * time.Second

// dial creates the clients. No request is made yet.
func (a Access) dial(agent string) (clients, error) {
	cfg, err := a.Config()
	if err != nil {
		return clients{}, err
	}
	cfg.UserAgent = agent
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Timeout = 0 // also of a watch
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return clients{}, a.fault("kubernetes.server %q: %w", cfg.Host, err)
	}
	if cfg.Dial == nil {
		cfg.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	dialer := connrotation.NewDialer(cfg.Dial)
	cfg.Dial = dialer.DialContext
	conns, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return clients{}, a.fault("API server %s: %w", base, err)
	}
	work, err := client(base, conns, flowcontrol.NewTokenBucketRateLimiter(workQPS, workBurst))
	if err != nil {
		return clients{}, err
	}
	lookup, err := client(base, conns, flowcontrol.NewTokenBucketRateLimiter(lookupQPS, lookupBurst))
	if err != nil {
		return clients{}, err
	}
	review, err := client(base, conns, flowcontrol.NewTokenBucketRateLimiter(reviewQPS, reviewBurst))
	return clients{work, lookup, review, dialer}, err
}

// Reconnect closes the connections to the server. Requests in progress fail and are retried on a new connection: a
// connection from an address that the node has lost hangs until its keepalive fails.
func (s *Store) Reconnect() { s.clients.conns.CloseAll() }

func client(base *url.URL, conns *http.Client, limit flowcontrol.RateLimiter) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1) // Status, the type of the server's errors
	codecs := serializer.NewCodecFactory(scheme).WithoutConversion()
	return rest.NewRESTClient(base, "/", rest.ClientContentConfig{
		AcceptContentTypes: runtime.ContentTypeJSON, ContentType: runtime.ContentTypeJSON, GroupVersion: v1,
		Negotiator: runtime.NewClientNegotiator(codecs, v1),
	}, limit, conns)
}

// Config returns the configuration of client-go for the server.
func (a Access) Config() (*rest.Config, error) {
	cfg, err := a.config()
	if err == nil && a.Server != "" {
		cfg.Host = a.Server
	}
	return cfg, err
}

func (a Access) config() (*rest.Config, error) {
	if a.Kubeconfig != "" {
		if err := a.checkContext(); err != nil {
			return nil, err
		}
		cfg, err := a.kubeconfig().ClientConfig()
		if err != nil {
			return nil, a.fault("kubernetes.kubeconfig %q: %w", a.Kubeconfig, err)
		}
		return cfg, nil
	}
	dir := a.Secrets
	if dir == "" {
		dir = serviceAccount
	}
	cfg := &rest.Config{
		// Read again every minute, and at once if the server rejects the token.
		WrapTransport: transport.ResettableTokenSourceWrapTransport(
			transport.NewCachedFileTokenSource(filepath.Join(dir, "token")),
		),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(dir, "ca.crt")},
	}
	host, port := a.Getenv("KUBERNETES_SERVICE_HOST"), a.Getenv("KUBERNETES_SERVICE_PORT")
	switch {
	case a.Server != "":
	case host == "" || port == "":
		return nil, model.Errorf(model.CodeInvalidConf, "set kubernetes.kubeconfig outside of a pod, or kubernetes.server",
			"kubernetes.inCluster true: KUBERNETES_SERVICE_HOST %q and KUBERNETES_SERVICE_PORT %q are not those of a pod", host,
			port)
	default:
		cfg.Host = "https://" + net.JoinHostPort(host, port)
	}
	return cfg, nil
}

// kubeconfig reads the files when it is asked.
func (a Access) kubeconfig() clientcmd.ClientConfig {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: a.Kubeconfig}
	if files := filepath.SplitList(a.Kubeconfig); len(files) > 1 { // those that do not exist are left out, as by kubectl
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: a.Context})
}

// checkContext returns an error if the kubeconfig does not have the context.
func (a Access) checkContext() error {
	if a.Context == "" {
		return nil
	}
	all, err := a.kubeconfig().RawConfig()
	if err != nil {
		return a.fault("kubernetes.kubeconfig %q: %w", a.Kubeconfig, err)
	}
	if _, has := all.Contexts[a.Context]; !has {
		return model.Errorf(model.CodeInvalidConf, "`kubectl config get-contexts` lists them",
			"context %q is not in kubeconfig %q", a.Context, a.Kubeconfig)
	}
	return nil
}

// Namespace returns the namespace of the kubeconfig's context, "default" if it has none.
func (a Access) Namespace() string {
	if a.Kubeconfig == "" {
		return "default"
	}
	if namespace, _, err := a.kubeconfig().Namespace(); err == nil && namespace != "" {
		return namespace
	}
	return "default"
}

func (a Access) fault(format string, args ...any) error {
	return model.Errorf(model.CodeInvalidConf, "look at the agent's configuration, key kubernetes", "%w",
		fmt.Errorf(format, args...))
}
