"""admissionregistration.k8s.io: webhooks and policies that judge requests."""

# ruff: noqa: E501 (one line per field)

TABLE = """
admissionregistration.ValidatingWebhookConfiguration v1.ValidatingWebhookConfiguration | Webhooks that may refuse requests.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  webhooks 2 []admissionregistration.ValidatingWebhook merge=name map=name | The webhooks, which are called at the same time.
admissionregistration.MutatingWebhookConfiguration v1.MutatingWebhookConfiguration | Webhooks that may change objects or refuse requests.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  webhooks 2 []admissionregistration.MutatingWebhook merge=name map=name | The webhooks, which are called one after the other.
admissionregistration.ValidatingWebhook v1.ValidatingWebhook | A webhook that may refuse requests.
  name 1 string! required | Its name, with at least two dots.
  clientConfig 2 admissionregistration.WebhookClientConfig! required | Where it is, and whose certificate it has.
  rules 3 []admissionregistration.RuleWithOperations | Which requests concern it.
  failurePolicy 4 string/v1.FailurePolicyType* | Fail or Ignore: what happens where it cannot be called.
  matchPolicy 9 string/v1.MatchPolicyType* | Exact, or Equivalent: also other versions of the resources.
  namespaceSelector 5 meta.LabelSelector | Which namespaces concern it.
  objectSelector 10 meta.LabelSelector | Which objects concern it.
  sideEffects 6 string/v1.SideEffectClass*! required | None or NoneOnDryRun.
  timeoutSeconds 7 int32* | How long an answer may take, 1 to 30 seconds.
  admissionReviewVersions 8 []string! required | Versions of AdmissionReview that it understands.
  matchConditions 11 []admissionregistration.MatchCondition merge=name map=name | Expressions that must all hold.
admissionregistration.MutatingWebhook v1.MutatingWebhook | A webhook that may change objects or refuse requests.
  name 1 string! required | Its name, with at least two dots.
  clientConfig 2 admissionregistration.WebhookClientConfig! required | Where it is, and whose certificate it has.
  rules 3 []admissionregistration.RuleWithOperations | Which requests concern it.
  failurePolicy 4 string/v1.FailurePolicyType* | Fail or Ignore: what happens where it cannot be called.
  matchPolicy 9 string/v1.MatchPolicyType* | Exact, or Equivalent: also other versions of the resources.
  namespaceSelector 5 meta.LabelSelector | Which namespaces concern it.
  objectSelector 11 meta.LabelSelector | Which objects concern it.
  sideEffects 6 string/v1.SideEffectClass*! required | None or NoneOnDryRun.
  timeoutSeconds 7 int32* | How long an answer may take, 1 to 30 seconds.
  admissionReviewVersions 8 []string! required | Versions of AdmissionReview that it understands.
  reinvocationPolicy 10 string/v1.ReinvocationPolicyType* | Never, or IfNeeded: again if a later webhook changes the object.
  matchConditions 12 []admissionregistration.MatchCondition merge=name map=name | Expressions that must all hold.
admissionregistration.WebhookClientConfig v1.WebhookClientConfig | Where a webhook is.
  url 3 string* | Its address, https://…
  service 1 admissionregistration.ServiceReference | The service of its pods.
  caBundle 2 bytes | Certificates of the authority that signed its certificate, as PEM.
admissionregistration.ServiceReference v1.ServiceReference | A service.
  namespace 1 string! required | Its namespace.
  name 2 string! required | Its name.
  path 3 string* | The path of the webhook.
  port 4 int32* | The port of the service; 443 if absent.
admissionregistration.RuleWithOperations v1.RuleWithOperations | Which requests concern a webhook or policy.
  operations 1 []string/v1.OperationType | CREATE, UPDATE, DELETE, CONNECT or *.
  apiGroups 2.1 []string | API groups, or *.
  apiVersions 2.2 []string | API versions, or *.
  resources 2.3 []string | Resources, such as pods, pods/status, */scale or *.
  scope 2.4 string/v1.ScopeType* | Cluster, Namespaced or *.
admissionregistration.MatchCondition v1.MatchCondition | A condition in the Common Expression Language.
  name 1 string! required | Its name.
  expression 2 string! required | The expression.
admissionregistration.ValidatingAdmissionPolicy v1.ValidatingAdmissionPolicy | Expressions that objects must satisfy where a binding says so.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 admissionregistration.ValidatingAdmissionPolicySpec! | The expressions.
  status 3 admissionregistration.ValidatingAdmissionPolicyStatus! | What their types are worth.
admissionregistration.ValidatingAdmissionPolicySpec v1.ValidatingAdmissionPolicySpec | Expressions that objects must satisfy.
  paramKind 1 admissionregistration.ParamKind | The kind of its parameters.
  matchConstraints 2 admissionregistration.MatchResources | Which requests concern it.
  validations 3 []admissionregistration.Validation | What must hold.
  failurePolicy 4 string/v1.FailurePolicyType* | Fail or Ignore: what happens where an expression has an error.
  auditAnnotations 5 []admissionregistration.AuditAnnotation | What is added to the audit event.
  matchConditions 6 []admissionregistration.MatchCondition merge=name map=name | Expressions that must all hold before.
  variables 7 []admissionregistration.Variable merge=name map=name | Names for expressions.
admissionregistration.MutatingAdmissionPolicy v1.MutatingAdmissionPolicy | Expressions that change objects where a binding says so.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 admissionregistration.MutatingAdmissionPolicySpec! | The expressions.
admissionregistration.MutatingAdmissionPolicySpec v1.MutatingAdmissionPolicySpec | Expressions that change objects.
  paramKind 1 admissionregistration.ParamKind | The kind of its parameters.
  matchConstraints 2 admissionregistration.MatchResources | Which requests concern it.
  variables 3 []admissionregistration.Variable | Names for expressions.
  mutations 4 []admissionregistration.Mutation | What is changed, one after the other.
  failurePolicy 5 string/v1.FailurePolicyType* | Fail or Ignore: what happens where an expression has an error.
  matchConditions 6 []admissionregistration.MatchCondition merge=name map=name | Expressions that must all hold before.
  reinvocationPolicy 7 string/v1.ReinvocationPolicyType | Never, or IfNeeded: again if the object is changed later.
admissionregistration.Mutation v1.Mutation | A change of the object.
  patchType 2 string/v1.PatchType! required | ApplyConfiguration or JSONPatch.
  applyConfiguration 3 admissionregistration.ApplyConfiguration | The fields to set.
  jsonPatch 4 admissionregistration.JSONPatch | The operations of a JSON patch.
admissionregistration.ApplyConfiguration v1.ApplyConfiguration | The fields to set.
  expression 1 string | An expression that gives an Object.
admissionregistration.JSONPatch v1.JSONPatch | The operations of a JSON patch.
  expression 1 string | An expression that gives a list of JSONPatch.
admissionregistration.MutatingAdmissionPolicyBinding v1.MutatingAdmissionPolicyBinding | Where a policy applies, with which parameters.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 admissionregistration.MutatingAdmissionPolicyBindingSpec! | Which policy.
admissionregistration.MutatingAdmissionPolicyBindingSpec v1.MutatingAdmissionPolicyBindingSpec | Where a policy applies.
  policyName 1 string | The policy.
  paramRef 2 admissionregistration.ParamRef | Its parameters.
  matchResources 3 admissionregistration.MatchResources | Which requests concern it, beside what the policy says.
admissionregistration.ParamKind v1.ParamKind | The kind of parameters.
  apiVersion 1 string | Its group and version.
  kind 2 string | The kind.
admissionregistration.MatchResources v1.MatchResources | Which requests concern a policy.
  namespaceSelector 1 meta.LabelSelector | Which namespaces.
  objectSelector 2 meta.LabelSelector | Which objects.
  resourceRules 3 []admissionregistration.NamedRuleWithOperations | Which operations on which resources.
  excludeResourceRules 4 []admissionregistration.NamedRuleWithOperations | Except these.
  matchPolicy 7 string/v1.MatchPolicyType* | Exact, or Equivalent: also other versions of the resources.
admissionregistration.NamedRuleWithOperations v1.NamedRuleWithOperations | Which requests concern a policy.
  resourceNames 1 []string | Only objects with these names.
  operations 2.1 []string/v1.OperationType | CREATE, UPDATE, DELETE, CONNECT or *.
  apiGroups 2.2.1 []string | API groups, or *.
  apiVersions 2.2.2 []string | API versions, or *.
  resources 2.2.3 []string | Resources, such as pods, pods/status, */scale or *.
  scope 2.2.4 string/v1.ScopeType* | Cluster, Namespaced or *.
admissionregistration.Validation v1.Validation | What must hold.
  expression 1 string! required | An expression that gives a bool.
  message 2 string | The message to a refused client.
  reason 3 string/metav1.StatusReason* | Unauthorized, Forbidden, Invalid or RequestEntityTooLarge.
  messageExpression 4 string | An expression that gives the message.
admissionregistration.AuditAnnotation v1.AuditAnnotation | An annotation of the audit event.
  key 1 string! required | The end of its key.
  valueExpression 2 string! required | An expression that gives its value, or null.
admissionregistration.Variable v1.Variable | A name for an expression.
  name 1 string! required | Its name; expressions write variables.NAME.
  expression 2 string! required | The expression.
admissionregistration.ValidatingAdmissionPolicyStatus v1.ValidatingAdmissionPolicyStatus | What the expressions' types are worth.
  observedGeneration 1 int64 | Generation the status is about.
  typeChecking 2 admissionregistration.TypeChecking | What does not fit the types of the resources.
  conditions 3 []meta.Condition map=type | The policy's conditions.
admissionregistration.TypeChecking v1.TypeChecking | What does not fit the types of the resources.
  expressionWarnings 1 []admissionregistration.ExpressionWarning | One for each expression.
admissionregistration.ExpressionWarning v1.ExpressionWarning | An expression that does not fit the types of the resources.
  fieldRef 2 string! required | The field of the expression.
  warning 3 string! required | What does not fit.
admissionregistration.ValidatingAdmissionPolicyBinding v1.ValidatingAdmissionPolicyBinding | Where a policy applies, with which parameters.
  metadata 1 meta.ObjectMeta! | Name, labels and other metadata.
  spec 2 admissionregistration.ValidatingAdmissionPolicyBindingSpec! | Which policy, and what it does.
admissionregistration.ValidatingAdmissionPolicyBindingSpec v1.ValidatingAdmissionPolicyBindingSpec | Where a policy applies.
  policyName 1 string! | The policy.
  paramRef 2 admissionregistration.ParamRef | Its parameters.
  matchResources 3 admissionregistration.MatchResources | Which requests concern it, beside what the policy says.
  validationActions 4 []string/v1.ValidationAction set | Deny, Warn, Audit.
admissionregistration.ParamRef v1.ParamRef atomic | Parameters of a policy.
  name 1 string | Their name.
  namespace 2 string | Their namespace; that of the request if absent.
  selector 3 meta.LabelSelector | Or all that have these labels.
  parameterNotFoundAction 4 string/v1.ParameterNotFoundActionType* | Allow or Deny.
"""
