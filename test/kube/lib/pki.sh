# SPDX-License-Identifier: Apache-2.0
#
# The cluster's certificates. To be sourced after names.sh.

# certificate NAME SUBJECT USAGE [ALTERNATIVES]
certificate() {
	[ ! -f "$pki/$1.crt" ] || return 0
	openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/$1.key" -out "$pki/$1.csr" -subj "$2" 2>/dev/null
	{
		echo "keyUsage=critical,digitalSignature,keyEncipherment"
		echo "extendedKeyUsage=$3"
		[ -z "${4-}" ] || echo "subjectAltName=$4"
	} >"$pki/$1.ext"
	openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 365 -extfile "$pki/$1.ext" -out "$pki/$1.crt" 2>/dev/null
}

# kubeconfig NAME: for the certificate of that name.
kubeconfig() {
	cat >"$pki/$1.kubeconfig" <<-E
		apiVersion: v1
		kind: Config
		clusters: [{name: $name, cluster: {server: "$(api)", certificate-authority: "$pki/ca.crt"}}]
		users: [{name: $1, user: {client-certificate: "$pki/$1.crt", client-key: "$pki/$1.key"}}]
		contexts: [{name: $name, context: {cluster: $name, user: $1}}]
		current-context: $name
	E
}

make_pki() {
	mkdir -p "$pki"
	chmod 700 "$pki"
	openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout "$pki/ca.key" -out "$pki/ca.crt" -days 365 -subj "/CN=$name" 2>/dev/null
	openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
	openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
	certificate apiserver /CN=kube-apiserver serverAuth \
		"DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$CONTROL_IP,IP:$CONTROL_IP6,IP:$(api_service_ip)"
	certificate kubelet-client /O=system:masters/CN=apiserver-kubelet-client clientAuth
	certificate front-proxy /CN=front-proxy-client clientAuth
	certificate admin /O=system:masters/CN=admin clientAuth
	certificate controllers /CN=system:kube-controller-manager clientAuth
	certificate scheduler /CN=system:kube-scheduler clientAuth
	certificate proxy /CN=system:kube-proxy clientAuth
	local who
	for who in admin controllers scheduler proxy; do kubeconfig "$who"; done
	for who in $(node_names); do
		certificate "$who" "/O=system:nodes/CN=system:node:$who" clientAuth,serverAuth "DNS:$who,IP:$(node_ip "$who"),IP:$(node_ip6 "$who")"
		kubeconfig "$who"
	done
}
