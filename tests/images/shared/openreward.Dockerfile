ARG BASE
FROM ${BASE}
RUN pip install --no-cache-dir openreward==0.1.167
WORKDIR /app
COPY tests/interop/kit.py tests/images/shared/serve_openreward.py ./
ENV PYTHONUNBUFFERED=1 ORSAY_KIT=openreward.environments
USER 1000
EXPOSE 8080
CMD ["python", "serve_openreward.py"]
